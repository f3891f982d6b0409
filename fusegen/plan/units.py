"""What there is one value each of, as kernels see it: the axes of a view in the order in which memory has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import groupby

from fusegen.errors import InternalError
from fusegen.ir.axes import Axes

ORDER = ("N", "C")
"""The axes of a chain's tensors, from the outermost to the innermost in memory."""


class Unit(StrEnum):
    """What there is one value each of."""

    ELEMENT = "element"
    CHANNEL = "channel"
    ROW = "row"
    GROUP = "group"
    SCALAR = "scalar"


@dataclass(frozen=True)
class Runs:
    """The axes of a tensor in memory, those next to each other that are kept, or reduced, taken together:
    [batch][outer][kept][inner], of which outer and inner are reduced. An axis in blocks is kept, then reduced."""

    batch: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


def collapse(axes: Axes, order: Sequence[str] = ORDER) -> Runs | None:
    """How a pass over memory reduces elements to one value for each element of `axes`; None where kept and reduced axes
    take turns more often than a kernel can follow."""
    parts = [(name, kept) for name in order for kept in _parts(axes, name)]
    runs = [(kept, tuple(name for name, _ in part)) for kept, part in groupby(parts, key=lambda part: part[1])]
    names = [names for _, names in runs]
    match [kept for kept, _ in runs]:
        case []:
            return Runs()
        case [True]:
            return Runs(batch=names[0])
        case [False]:
            return Runs(inner=names[0])
        case [True, False]:
            return Runs(batch=names[0], inner=names[1])
        case [False, True, *rest] if len(rest) < 2:
            return Runs((), *names)
        case [True, False, True, *rest] if len(rest) < 2:
            return Runs(*names)
    return None


def _parts(axes: Axes, name: str) -> tuple[bool, ...]:
    """Of an axis: whether each part of it is kept."""
    if name not in axes:
        return (False,)
    return (True,) if axes.blocks(name) is None else (True, False)


@cache
def unit_of(axes: Axes) -> Unit:
    """The unit that kernels have for one value for each element of `axes`."""
    runs = collapse(axes)
    if runs is not None and not runs.outer:
        if not runs.inner:
            return Unit.ELEMENT
        if not runs.batch:
            return Unit.SCALAR
        return Unit.GROUP if any(axes.blocks(name) is not None for name in runs.batch) else Unit.ROW
    if runs is None or runs.batch or runs.inner:
        raise InternalError(f"no kernel has one value for each element of {axes} in memory order {ORDER}")
    return Unit.CHANNEL
