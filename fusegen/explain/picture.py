"""A report as a picture: an SVG that stands alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fusegen.explain import model, wording
from fusegen.explain.boxes import Line, lines, stacks
from fusegen.explain.colours import DARK, LIGHT, drawing_rules, page_rules
from fusegen.explain.drawing import CHARACTER, FONT, LINE, WIDTH, Drawing, drawn, together, written
from fusegen.paths import templates_directory

_EDGE, _BETWEEN = 16.0, 24.0


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
    return environment().get_template("picture.svg.j2").render(drawing=drawing_of(report), title=title(report))


def title(report: model.Report) -> str:
    """What the report is of."""
    return f"{report.name}, {report.dtype}, {report.shape} on {report.device.name}"


def drawing_of(report: model.Report) -> Drawing:
    """All that the picture has."""
    width = 2 * WIDTH + _BETWEEN
    columns = int(width / CHARACTER)
    head = [Line(title(report), "title")] if len(title(report)) <= columns else lines(title(report), "title")
    parts = [written(head).moved(_EDGE, _EDGE)]
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
    sheet = together(parts)
    return replace(sheet, width=width + 2 * _EDGE, height=sheet.height + LINE / 2)
