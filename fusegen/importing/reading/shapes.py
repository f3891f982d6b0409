"""The dimensions of values: what each runs over, through broadcasting, reductions and views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.importing.reading.values import CHANNELS, ROWS, UNKNOWN, Layout


def first_layout(rank: int, spatial: int = 0) -> Layout:
    """The layout of the first input, of `rank` dimensions: labels "0", "1" and so on of dimensions of rows, then
    CHANNELS. With `spatial` dimensions of positions it is batch, CHANNELS, positions."""
    if spatial:
        return ("0", CHANNELS, *(str(index) for index in range(1, spatial + 1)))
    return (*(str(index) for index in range(rank - 1)), CHANNELS)


def leaf_layout(sizes: Sequence[Any], of: Layout | None = None, first: Sequence[Any] = ()) -> Layout:
    """The layout of a parameter, or of an input. of: the layout of the first input, with which an input is aligned from
    the last dimension on; one of rows beside images has the first dimensions of these. first: the sizes of the first
    input: a dimension whose size is the same symbol has the same label. Dimensions of size 1 have None, those of a
    parameter UNKNOWN."""
    labels: list[str | None] = [UNKNOWN] * len(sizes)
    if of is not None:
        of = of[: len(sizes)] if of[-1] != CHANNELS and len(sizes) <= 2 else of
        labels = [*[UNKNOWN] * (len(sizes) - len(of)), *of[max(0, len(of) - len(sizes)) :]]
        symbols = {str(size): label for size, label in zip(first, of, strict=False) if not isinstance(size, int)}
        labels = [symbols.get(str(size), label) for size, label in zip(sizes, labels, strict=True)]
    return tuple(None if is_one(size) else label for size, label in zip(sizes, labels, strict=True))


def broadcast(left: Layout, right: Layout) -> Layout | None:
    """The layout of the broadcast result of two operands; None if a dimension has different labels in them."""
    rank = max(len(left), len(right))
    found = []
    for a, b in zip(_padded(left, rank), _padded(right, rank), strict=True):
        known = {each for each in (a, b) if each not in (None, UNKNOWN)}
        if len(known) > 1:
            return None
        found.append(known.pop() if known else UNKNOWN if UNKNOWN in (a, b) else None)
    return tuple(found)


def widened(layout: Layout) -> Layout:
    """The layout of the outer sum of a value for each row and a parameter: its UNKNOWN dimension becomes CHANNELS where
    no other dimension is."""
    if CHANNELS in layout or layout.count(UNKNOWN) != 1 or "0" not in layout:
        return layout
    return tuple(CHANNELS if each == UNKNOWN else each for each in layout)


def is_exchanged(layout: Layout) -> bool:
    """Whether the rows come behind the channels."""
    return CHANNELS in layout and "0" in layout[layout.index(CHANNELS) :]


def is_channels(layout: Layout, dim: int) -> bool:
    return -len(layout) <= dim < len(layout) and layout[dim] == CHANNELS


def is_reducible(layout: Layout, dim: int, sizes: Sequence[Any]) -> bool:
    """Whether a dimension is that of the channels, or one of 1 that a reduction of these has left."""
    left = CHANNELS not in layout and -len(layout) <= dim < len(layout) and layout[dim] is None and is_one(sizes[dim])
    return left or is_channels(layout, dim)


def reduced(layout: Layout, dim: int, keep: bool) -> Layout:
    at = dim % len(layout)
    return (*layout[:at], *([None] if keep else []), *layout[at + 1 :])


def viewed(layout: Layout, before: Sequence[Any], after: Sequence[Any], *, expands: bool) -> Layout | None:
    """The layout of a view: dimensions of size 1 may be added and dropped; None where other dimensions change.

    expands: whether dimensions of one element may be repeated: the value broadcasts wherever it is used.
    """
    if same_sizes(before, after):
        return layout
    if expands and len(before) == len(after) and _expands(before, after):
        return layout
    kept = [(label, str(size)) for label, size in zip(layout, before, strict=True) if not is_one(size)]
    if expands and len(after) > len(before):  # an expansion that adds dimensions in front
        tail = after[len(after) - len(before) :]
        if _expands(before, tail) and not _are(kept, after):
            return (*[None] * (len(after) - len(before)), *layout)
    if not _are(kept, after):
        return None
    labels = iter(label for label, _ in kept)
    return tuple(None if is_one(size) else next(labels) for size in after)


def merged(layout: Layout, before: Sequence[Any], after: Sequence[Any], first: Sequence[Any]) -> Layout | None:
    """The layout of a view that flattens all dimensions of rows into one, or restores those of the first input, whose
    sizes are `first`; None for another view. Of values without channels likewise."""
    leading = first_layout(len(first))[:-1]
    if layout == leading and len(after) == 1:
        return (ROWS,)
    if layout == (ROWS,):
        return leading if same_sizes(first[:-1], after) else None
    if layout not in ((*leading, CHANNELS), (ROWS, CHANNELS)) or str(before[-1]) != str(after[-1]):
        return None
    if len(after) == 2:
        return ROWS, CHANNELS
    return (*leading, CHANNELS) if same_sizes(first[:-1], after[:-1]) else None


def spatial_of(layout: Layout) -> int:
    """How many dimensions of positions a value of images has, whose dimensions are in order; 0 of rows."""
    return len(layout) - 2


def in_order(layout: Layout) -> Layout:
    """The layout of a value of images as its op has it: batch, channels, positions; None for one channel, where these
    are reduced. A layout without the batch is of no such value: what it is in this order."""
    if is_in_order(layout) and layout[1:2] in ((CHANNELS,), (None,)):
        return layout
    labels = [label for label in layout if label is not None]
    channels = [CHANNELS] if CHANNELS in labels else [None] if "0" in labels else []
    return (*[label for label in labels if label == "0"], *channels, *sorted({*labels} - {"0", CHANNELS}))


def is_in_order(layout: Layout) -> bool:
    """Whether the dimensions are those of a result of images."""
    positions = [label for label in layout if label not in ("0", CHANNELS, None)]
    at = layout.index(CHANNELS) if CHANNELS in layout else 1
    return layout[:1] == ("0",) and at == 1 and positions == sorted(positions)


def with_positions(layout: Layout, of: Layout) -> Layout:
    """The layout of a view of images, whose dimensions of one element behind the channels are positions. of: the layout
    of the first input."""
    if layout[:2] != of[:2] or len(layout) != len(of):
        return layout
    free = [label if own is None and label not in layout else own for own, label in zip(layout, of, strict=True)]
    return tuple(free)


def is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def same_sizes(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return [str(size) for size in before] == [str(size) for size in after]


def _expands(before: Sequence[Any], after: Sequence[Any]) -> bool:
    return all(str(a) == str(b) or is_one(a) for a, b in zip(before, after, strict=True))


def _are(kept: Sequence[tuple[str | None, str]], after: Sequence[Any]) -> bool:
    return [size for _, size in kept] == [str(size) for size in after if not is_one(size)]


def _padded(layout: Layout, rank: int) -> Layout:
    return (*[None] * (rank - len(layout)), *layout)


def shown(sizes: tuple[Any, ...], first: tuple[Any, ...], spatial: int = 0) -> str:
    """Sizes in words: those that change have names of the trace's. first: the sizes of the first input."""
    names = {str(size): "rows" for size in first[:-1]}
    if spatial:
        symbols = {str(size): "positions" for size in sizes if not isinstance(size, int)}
        names = {**symbols, str(first[0]): "batch"}
    return f"[{', '.join(names.get(str(size), str(size)) for size in sizes)}]"
