"""Over which axes of a chain's view a value varies.

A view is a set of named axes: N, the rows, C, the channels, and where a chain has it S, the positions of a row. What a
step broadcasts is the union of its operands' axes; what a reduction gives is their difference to the axes that it
reduces. The order of axes in memory is no property of a value: `fusegen.plan.programs.units` has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, reduce
from operator import or_

Dim = int | str
"""A size: a number, or the symbol of a size that stays dynamic, or one over another, such as "hidden/width"."""


def quotient(length: Dim, part: Dim) -> Dim:
    """How many parts a length has."""
    if isinstance(length, int) and isinstance(part, int):
        return length // part
    return f"{length}/{part}"


def dividend(dim: Dim) -> tuple[Dim, Dim] | None:
    """The two sizes of one over another; None for any other size."""
    if isinstance(dim, int) or "/" not in dim:
        return None
    length, part = (int(each) if each.isdecimal() else each for each in dim.split("/"))
    return length, part


@dataclass(frozen=True)
class Axes:
    """A set of axes.

    items: (name, blocks) of each axis, N first, the others by name. blocks: None where a value differs at each index of
        the axis, or into how many equal blocks of indices the axis is cut, each with one value.
    """

    items: tuple[tuple[str, Dim | None], ...] = ()

    @classmethod
    def of(cls, *names: str, **blocks: Dim) -> Axes:
        """The set of `names`, and of axes that are cut into blocks: Axes.of("N", C=4). One block is no axis."""
        found = {**dict.fromkeys(names), **{name: each for name, each in blocks.items() if each != 1}}
        return cls(tuple(sorted(found.items(), key=lambda item: (item[0] != "N", item[0]))))

    def blocks(self, name: str) -> Dim | None:
        """Into how many blocks the axis is cut; None where it is not cut, or not there."""
        return dict(self.items).get(name)

    def count(self, name: str, length: Dim) -> Dim:
        """How many values there are along an axis of this length."""
        blocks = dict(self.items).get(name, 1)
        return length if blocks is None else blocks

    def __contains__(self, name: str) -> bool:
        return name in dict(self.items)

    def __or__(self, other: Axes) -> Axes:
        """The axes of a function of two values. Blocks of different numbers have only single indices in common."""
        return self if self is other else _union(self, other)

    def __sub__(self, other: Axes) -> Axes:
        """The axes of a reduction over those of `other`."""
        return Axes(tuple(item for item in self.items if item[0] not in other))

    def __le__(self, other: Axes) -> bool:
        """Whether a value over these axes is constant within each element of `other`."""
        return self | other == other

    def __str__(self) -> str:
        return f"[{', '.join(name if blocks is None else str(blocks) for name, blocks in self.items)}]"


@cache  # planning asks this of every node of every candidate
def _union(one: Axes, other: Axes) -> Axes:
    found = dict(one.items)
    for name, blocks in other.items:
        found[name] = blocks if found.get(name, blocks) == blocks else None
    return Axes.of(*(name for name in found if found[name] is None), **{n: b for n, b in found.items() if b})


MATRIX = Axes.of("N", "C")
"""The view of a chain over rows of channels."""

SAMPLES = "_samples"
"""The number of samples, the blocks of as many rows each that elements of a batch of images are."""

CHANNEL = Axes.of("C")
ROW = Axes.of("N")
SAMPLE = Axes.of("C", N=SAMPLES)
SCALAR = Axes.of()


def broadcast(*found: Axes) -> Axes:
    """The axes of an element-wise result of values over these."""
    return reduce(or_, found, SCALAR)
