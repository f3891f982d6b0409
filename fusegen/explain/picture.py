"""A report as a picture: an SVG that stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fusegen.explain import model, wording
from fusegen.explain.boxes import Line, lines, stacks, wrap
from fusegen.explain.colours import DARK, LIGHT, drawing_rules, page_rules
from fusegen.explain.drawing import CHARACTER, FONT, LINE, WIDTH, Drawing, drawn, together, written
from fusegen.explain.whole import Whole
from fusegen.paths import templates_directory

_EDGE, _BETWEEN = 16.0, 24.0
_ACROSS = 2 * WIDTH + _BETWEEN


@cache
def environment() -> Environment:
    """Of the templates of pages: strict about names, and everything is escaped."""
    env = Environment(
        loader=FileSystemLoader(templates_directory() / "plan", encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.filters |= {"size": wording.size, "time": wording.time, "launch": wording.launch}
    env.filters |= {"number": number, "sentence": sentence}
    env.globals |= {"light": LIGHT, "dark": DARK, "rules": drawing_rules, "variables": page_rules, "font": FONT}
    return env


def number(value: float) -> str:
    """A coordinate, as short as may be."""
    return f"{value:.1f}".removesuffix(".0")


def sentence(text: str) -> str:
    """A reason as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def picture(report: model.Report) -> str:
    """Each direction of each variant as a row: eager PyTorch's operators, and the kernels that replace them."""
    return _rendered(drawing_of(report), title(report))


def picture_of_regions(whole: Whole, reports: Sequence[model.Report]) -> str:
    """The regions of a module one under the other, below the sums of their first variants."""
    return _rendered(drawing_of_regions(whole, reports), whole.name)


def _rendered(drawing: Drawing, title: str) -> str:
    return environment().get_template("picture.svg.j2").render(drawing=drawing, title=title)


def title(report: model.Report) -> str:
    """What the report is of."""
    return f"{report.name}, {report.dtype}, {report.shape} on {report.device.name}"


def drawing_of(report: model.Report) -> Drawing:
    """All that the picture has."""
    parts = [written(_head(title(report), "title")).moved(_EDGE, _EDGE)]
    y = parts[0].height
    for variant in report.variants:
        for program in variant.programs:
            heading = [Line("", "plain"), *lines(program.name, "title")]
            parts.append(written(heading).moved(_EDGE, y))
            y = parts[-1].height
            left, right = (drawn(stack) for stack in stacks(report, variant, program))
            parts += [left.moved(_EDGE, y), right.moved(_EDGE + WIDTH + _BETWEEN, y)]
            y = max(part.height for part in parts[-2:])
    after = " of what follows the product" if report.contraction else ""
    after = " of what follows the convolution" if report.convolution else after
    note = f"Bytes{after}, and the time that they are expected to take."
    parts.append(written([Line("", "plain"), Line(note, "muted")]).moved(_EDGE, y))
    return _sheet(parts)


def drawing_of_regions(whole: Whole, reports: Sequence[model.Report]) -> Drawing:
    """All that the picture of a module of several regions has."""
    head = _head(f"{whole.name}: {whole.about}", "title")
    for line in whole.figures:
        head += _head(line, "plain")
    for region in whole.regions:
        flow = f"{', '.join(region['takes'])} to {', '.join(region['makes'])}"
        head += _head(f"{region['name']}, {', '.join(region['ops'])}: {flow} ({whole.maker(region)})", "muted")
    parts = [written(head).moved(_EDGE, _EDGE)]
    for report in reports:
        parts.append(drawing_of(report).moved(0, parts[-1].height))
    return _sheet(parts)


def _head(text: str, style: str) -> list[Line]:
    """Lines over the whole width."""
    return [Line(each, style) for each in wrap(text, int(_ACROSS / CHARACTER))]


def _sheet(parts: Sequence[Drawing]) -> Drawing:
    sheet = together(parts)
    return replace(sheet, width=_ACROSS + 2 * _EDGE, height=sheet.height + LINE / 2)
