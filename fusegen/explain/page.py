"""A report as a page: HTML that stands alone, without scripts and without a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.explain import model
from fusegen.explain.boxes import stacks
from fusegen.explain.drawing import drawn
from fusegen.explain.picture import environment
from fusegen.explain.whole import Whole

Shown = tuple[Whole | None, Sequence[model.Report]]
"""The reports of a module's regions, behind what several are together."""


def page(*shown: Shown) -> str:
    """The HTML of what is shown, one under the other. All variants but the first are folded, and so is what was not
    taken."""
    found = [(whole, list(map(_shown, reports))) for whole, reports in shown]
    name = ", ".join(whole.name if whole else reports[0].name for whole, reports in shown)
    return environment().get_template("page.html.j2").render(name=name, modules=found)


def _shown(report: model.Report) -> tuple[model.Report, list[tuple[model.Variant, list[Any]]]]:
    variants = []
    for variant in report.variants:
        drawings = [[(stack, drawn(stack)) for stack in stacks(report, variant, each)] for each in variant.programs]
        variants.append((variant, list(zip(variant.programs, variant.totals, drawings, strict=True))))
    return report, variants
