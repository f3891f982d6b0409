"""A module of several regions as it is shown in front of the report of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusegen.explain import model
from fusegen.explain.times import of_bytes, of_library
from fusegen.explain.wording import enumeration, size, time
from fusegen.ir.multiples import value_of
from fusegen.ops.linear import Linear
from fusegen.ops.matmul import Matmul
from fusegen.plan.launches.devices import Device
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.sizes.called_bytes import called_bytes
from fusegen.plan.sizes.module_sizes import module_typical
from fusegen.render.python.regions import module_summary

# Regions of one step that the vendor library makes.
_LIBRARY = dict.fromkeys((each for step in (Linear, Matmul) for each in step.ops()), "the products")


@dataclass(frozen=True)
class Whole:
    """regions: in order, as plan.json has them. called: by region, what PyTorch moves forward and backward for a step
    that it calls on both sides. totals: of these, and of all regions that have kernels, in the first variant of each.
    left_out: the other regions. after: what else totals leave out, as the end of a sentence."""

    name: str
    about: str
    regions: list[dict[str, Any]]
    returns: list[str]
    called: dict[str, tuple[model.Moves, model.Moves]]
    totals: list[model.Total]
    left_out: list[str]
    after: str

    @property
    def figures(self) -> list[str]:
        """The totals, a line for each direction, and what they leave out."""
        lines = [f"{total.direction}, all regions: {_figures(total)}{self.after}" for total in self.totals]
        return [*lines, *([f"{self.omission}."] if self.left_out else [])]

    @property
    def besides(self) -> list[str]:
        """What both sides have and no total has, in words."""
        ops = {region["name"]: region["ops"] for region in self.regions}
        return list(dict.fromkeys(_LIBRARY.get(" ".join(ops[name]), name) for name in self.left_out))

    @property
    def omission(self) -> str:
        return f"What PyTorch makes of {enumeration(self.left_out)} is left out"

    def maker(self, region: dict[str, Any]) -> str:
        """Who makes a region, and what PyTorch moves for one that it calls."""
        by = region["package"] or region["by"]
        moves = self.called.get(region["name"])
        if moves is None:
            return by
        if not any(each.bytes for each in moves):
            return f"{by}; nothing is moved"
        forward, backward = (f"{size(each.bytes)} in {time(each.microseconds)}" for each in moves)
        return f"{by}; {forward} forward, {backward} backward"


def whole_of(planned: ModulePlan, reports: Sequence[model.Report], device: Device, *, typical: bool = True) -> Whole:
    """reports: of the regions that have kernels, in order. device: on which times are expected. typical: whether they
    are at the spec's own sizes, at which what PyTorch calls is known, too."""
    data = module_summary(planned)
    found = [report.variants[0].totals for report in reports]
    symbols = module_typical(planned).symbols if typical else None
    called = _called(planned, device, reports[0].dtype, symbols) if symbols is not None else {}
    has_kernels = {region["name"] for region in data["regions"] if region["package"] is not None}
    library = _library(planned, device, reports[0].dtype, symbols) if symbols is not None else {}
    known = {*has_kernels, *called, *library}
    left_out = [region["name"] for region in data["regions"] if region["name"] not in known]
    makers = ["the products"] if library or any(report.contraction is not None for report in reports) else []
    makers += ["the convolutions"] if any(report.convolution is not None for report in reports) else []
    return Whole(
        name=data["name"],
        about=planned.spec.about,
        regions=data["regions"],
        returns=data["returns"],
        called=called,
        totals=[
            summed(
                *(each, [moves[side] for moves in called.values()], reports),
                whole=not left_out,
                library=[times[side] for times in library.values()],
            )
            for side, each in enumerate(zip(*found, strict=True))
        ],
        left_out=left_out,
        after=f", after {enumeration(makers)}" if makers else "",
    )


def _figures(total: model.Total) -> str:
    fused = f"{size(total.fused_bytes)}, {time(total.fused_microseconds)}"
    eager = f"{size(total.eager_bytes)}, {time(total.eager_microseconds)}"
    return f"{fused} instead of {eager} in eager PyTorch"


def _called(
    planned: ModulePlan, device: Device, dtype: str, symbols: Mapping[str, int]
) -> dict[str, tuple[model.Moves, model.Moves]]:
    return {
        region.name: (_moves(device, forward), _moves(device, backward))
        for region in planned.regions
        if region.is_called
        for forward, backward in [called_bytes(planned, region, symbols, dtype)]
    }


def _library(
    planned: ModulePlan, device: Device, dtype: str, symbols: Mapping[str, int]
) -> dict[str, tuple[float, float]]:
    """Of each product that is a region alone, its microseconds forward and backward, where these are known."""
    found = {}
    for region in planned.regions:
        if region.plan is None and isinstance(region.steps[0], Linear | Matmul):
            given, made = (
                [value_of(dim, symbols) for dim in planned.shapes[name]]
                for name in (next(iter(region.inputs)), region.results[0])
            )
            times = of_library(device, dtype, (math.prod(made[:-1]), made[-1], given[-1]))
            if times is not None:
                found[region.name] = times
    return found


def _moves(device: Device, count: int) -> model.Moves:
    return model.Moves(bytes=count, microseconds=round(of_bytes(device, count), 3), saved_bytes=0)


def summed(
    totals: Sequence[model.Total],
    called: Sequence[model.Moves],
    reports: Sequence[model.Report],
    *,
    whole: bool,
    library: Sequence[float] = (),
) -> model.Total:
    """One direction of all regions. called: what PyTorch moves besides. whole: whether there is nothing else: products
    are in it where that is so, and the times of all are known. library: those of products without kernels."""
    moved, taken = sum(each.bytes for each in called), sum(each.microseconds for each in called)
    products = [each for each, report in zip(totals, reports, strict=True) if report.contraction is not None]
    known = whole and (products or library) and all(each.eager_product is not None for each in products)
    eager, fused = (
        [*library, *(getattr(each, key) or 0.0 for each in products)] if known else None
        for key in ("eager_product", "fused_product")
    )
    return model.Total(
        direction=totals[0].direction,
        eager_bytes=moved + sum(each.eager_bytes for each in totals),
        eager_microseconds=round(taken + sum(each.eager_microseconds for each in totals), 3),
        fused_bytes=moved + sum(each.fused_bytes for each in totals),
        fused_microseconds=round(taken + sum(each.fused_microseconds for each in totals), 3),
        besides_bytes=sum(each.besides_bytes for each in totals),
        eager_product=None if eager is None else round(sum(eager), 3),
        fused_product=None if fused is None else round(sum(fused), 3),
    )
