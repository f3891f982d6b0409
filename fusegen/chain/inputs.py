"""Further inputs of a chain: shapes that broadcast to that of the running value, and what becomes of them.

The graph has rows of channels. Each dimension but the channels is one of rows. An input that varies over some of these
alone has a value for each row in the graph: it is *spread*. Kernels read it as it is if they can, else a call expands
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fusegen.ir.axes import Axes, Dim

Fits = Callable[[int, Dim], bool]
Spread = Literal["first", "last", "others"]


@dataclass(frozen=True)
class Reach:
    """What an input varies over.

    axes: of the view. spread: over which dimensions of rows, if not over all or none: the first ones, so that one row
    of it is for a block of rows; the last ones, so that its rows come again and again; or others. batched: it has the
    shape [batch, channels] beside more dimensions, so that a dimension of 1 is missing for each of those between.
    """

    axes: Axes
    spread: Spread | None = None
    batched: bool = False

    @property
    def is_compact(self) -> bool:
        """Whether kernels take it as it is, and know which of their rows is which of its own."""
        return self.spread in ("first", "last") and "C" in self.axes


def reach(shape: Sequence[Dim | None], count: int, channel: int, fits: Fits) -> Reach | None:
    """What a tensor of this shape varies over where it is broadcast to `count` dimensions; None where it cannot be.

    channel: the dimension of the channels. fits: whether a dimension of the running value has a size. A size of None,
    which nobody could read, is taken for one that fits.
    """
    missing = count - len(shape)
    if missing < 0:
        return None

    def known(index: int, dim: Dim | None) -> bool:
        return dim is None or fits(index, dim)

    sizes = {index + missing: dim for index, dim in enumerate(shape)}
    if any(dim != 1 and not known(index, dim) for index, dim in sizes.items()):
        last = count - 1
        if len(shape) == 2 and missing and channel == last and known(0, shape[0]) and known(last, shape[1]):
            return Reach(Axes.of("N", "C"), "first", batched=True)
        return None
    # As large as the running value, even where a size of that is 1.
    if not missing and all(known(index, dim) for index, dim in sizes.items()):
        return Reach(Axes.of("N", "C"))
    rows = [sizes.get(index, 1) != 1 for index in range(count) if index != channel]
    axes = Axes.of(*(["N"] if any(rows) else []), *(["C"] if sizes.get(channel, 1) != 1 else []))
    if not any(rows) or all(rows):
        return Reach(axes)
    count = sum(rows)
    is_first, is_last = all(rows[:count]), all(rows[len(rows) - count :])
    return Reach(axes, "first" if is_first else "last" if is_last else "others")
