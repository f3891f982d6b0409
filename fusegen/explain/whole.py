"""A module of several regions as it is shown in front of the report of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fusegen.explain import model
from fusegen.explain.wording import enumeration
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.python.regions import module_summary


@dataclass(frozen=True)
class Whole:
    """regions: in order, as plan.json has them. totals: of all regions that have kernels, in the first variant of each.
    left_out: the regions that have none. after: what else totals leave out, as the end of a sentence."""

    name: str
    about: str
    regions: list[dict[str, Any]]
    returns: list[str]
    totals: list[model.Total]
    left_out: list[str]
    after: str


def whole_of(planned: ModulePlan, reports: Sequence[model.Report]) -> Whole:
    """reports: of the regions that have kernels, in order."""
    data = module_summary(planned)
    found = [report.variants[0].totals for report in reports]
    left_out = [region["name"] for region in data["regions"] if region["package"] is None]
    makers = ["the products"] if any(report.contraction is not None for report in reports) else []
    makers += ["the convolutions"] if any(report.convolution is not None for report in reports) else []
    return Whole(
        name=data["name"],
        about=planned.spec.about,
        regions=data["regions"],
        returns=data["returns"],
        totals=[_sum(each, reports, whole=not left_out) for each in zip(*found, strict=True)],
        left_out=left_out,
        after=f", after {enumeration(makers)}" if makers else "",
    )


def _sum(totals: Sequence[model.Total], reports: Sequence[model.Report], *, whole: bool) -> model.Total:
    """One direction of all regions. Products are in it where the times of all are known."""
    products = [each for each, report in zip(totals, reports, strict=True) if report.contraction is not None]
    known = whole and products and all(each.eager_product is not None for each in products)
    eager, fused = (
        [getattr(each, key) or 0.0 for each in products] if known else None
        for key in ("eager_product", "fused_product")
    )
    return model.Total(
        direction=totals[0].direction,
        eager_bytes=sum(each.eager_bytes for each in totals),
        eager_microseconds=round(sum(each.eager_microseconds for each in totals), 3),
        fused_bytes=sum(each.fused_bytes for each in totals),
        fused_microseconds=round(sum(each.fused_microseconds for each in totals), 3),
        besides_bytes=sum(each.besides_bytes for each in totals),
        eager_product=None if eager is None else round(sum(eager), 3),
        fused_product=None if fused is None else round(sum(fused), 3),
    )
