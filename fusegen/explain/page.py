"""A report as a page: HTML that stands alone, without scripts and without a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.explain import model
from fusegen.explain.boxes import stacks
from fusegen.explain.drawing import drawn
from fusegen.explain.picture import environment
from fusegen.explain.whole import Whole

_Shown = tuple[model.Report, list[tuple[model.Variant, list[Any]]]]


def page(report: model.Report) -> str:
    """The HTML of a report. All variants but the first are folded, and so is what was not taken."""
    return environment().get_template("page.html.j2").render(name=report.name, reports=[_shown(report)])


def page_of_regions(whole: Whole, reports: Sequence[model.Report]) -> str:
    """The HTML of a module of several regions: the whole, then the report of each."""
    shown = list(map(_shown, reports))
    return environment().get_template("regions.html.j2").render(name=whole.name, whole=whole, reports=shown)


def _shown(report: model.Report) -> _Shown:
    variants = []
    for variant in report.variants:
        drawings = [[(stack, drawn(stack)) for stack in stacks(report, variant, each)] for each in variant.programs]
        variants.append((variant, list(zip(variant.programs, variant.totals, drawings, strict=True))))
    return report, variants
