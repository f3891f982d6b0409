"""What there is one value each of, as kernels see it: the axes of a view in the order in which memory has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import groupby

from fusegen.errors import InternalError
from fusegen.ir.axes import CHANNEL, Axes

ORDER = ("N", "C")
"""The axes of a chain's tensors, from the outermost to the innermost in memory."""


class Unit(Enum):
    """What there is one value each of. SAMPLE: of a channel of a sample. Of a group of a sample's channels each channel
    has the value in memory, [samples, channels]."""

    ELEMENT = "element"
    CHANNEL = "channel"
    ROW = "row"
    GROUP = "group"
    SAMPLE = "sample"
    SAMPLE_GROUP = "sample_group"
    SCALAR = "scalar"

    @property
    def of_samples(self) -> bool:
        return self in (Unit.SAMPLE, Unit.SAMPLE_GROUP)

    @property
    def leaves_partials(self) -> bool:
        """Whether a pass from memory leaves partial results of each channel, for a kernel that merges them."""
        return self is Unit.CHANNEL or self.of_samples

    @property
    def stores(self) -> Unit:
        """The unit whose sums a value of this one may be stored with, if it follows from none."""
        return {Unit.GROUP: Unit.ROW, Unit.SAMPLE_GROUP: Unit.SAMPLE}.get(self, self)


@dataclass(frozen=True)
class Collapsed:
    """The axes of a tensor in memory, parallel or reduced ones that are next to each other taken together:
    [batch][outer][parallel][inner], of which outer and inner are reduced. An axis in blocks is parallel, then
    reduced."""

    batch: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()
    parallel: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


def collapse(axes: Axes, order: Sequence[str] = ORDER) -> Collapsed | None:
    """How a pass over memory reduces elements to one value for each element of `axes`; None where parallel and
    reduced axes alternate more often than a kernel can follow."""
    parts = [(name, parallel) for name in order for parallel in _parts(axes, name)]
    merged = [(parallel, tuple(name for name, _ in part)) for parallel, part in groupby(parts, lambda part: part[1])]
    names = [names for _, names in merged]
    match [parallel for parallel, _ in merged]:
        case []:
            return Collapsed()
        case [True]:
            return Collapsed(batch=names[0])
        case [False]:
            return Collapsed(inner=names[0])
        case [True, False]:
            return Collapsed(batch=names[0], inner=names[1])
        case [False, True, *rest] if len(rest) < 2:
            return Collapsed((), *names)
        case [True, False, True, *rest] if len(rest) < 2:
            return Collapsed(*names)
    return None


def _parts(axes: Axes, name: str) -> tuple[bool, ...]:
    """Of an axis: whether each part of it is parallel."""
    if name not in axes:
        return (False,)
    return (True,) if axes.blocks(name) is None else (True, False)


def within(axes: Axes) -> Axes:
    """What values may vary over that follow from the sums of a pass with one value for each element of `axes`. Those of
    a group of a sample follow for each of its channels."""
    return axes | CHANNEL if unit_of(axes).of_samples else axes


@cache
def unit_of(axes: Axes) -> Unit:
    """The unit that kernels have for one value for each element of `axes`."""
    if axes.blocks("N") is not None:
        return Unit.SAMPLE if axes | CHANNEL == axes else Unit.SAMPLE_GROUP
    collapsed = collapse(axes)
    if collapsed is not None and not collapsed.outer:
        if not collapsed.inner:
            return Unit.ELEMENT
        if not collapsed.batch:
            return Unit.SCALAR
        return Unit.GROUP if any(axes.blocks(name) is not None for name in collapsed.batch) else Unit.ROW
    if collapsed is None or collapsed.batch or collapsed.inner:
        raise InternalError(f"no kernel has one value for each element of {axes} in memory order {ORDER}")
    return Unit.CHANNEL
