"""A report as a page: HTML that stands alone, without scripts and without a network."""

from __future__ import annotations

from fusegen.explain import model
from fusegen.explain.boxes import stacks
from fusegen.explain.drawing import drawn
from fusegen.explain.picture import environment, title


def page(report: model.Report) -> str:
    """The HTML of a report. All variants but the first are folded, and so is what was not taken."""
    variants = []
    for variant in report.variants:
        drawings = [[(stack, drawn(stack)) for stack in stacks(report, variant, each)] for each in variant.programs]
        variants.append((variant, list(zip(variant.programs, variant.totals, drawings, strict=True))))
    return environment().get_template("page.html.j2").render(report=report, variants=variants, title=title(report))
