"""Over which axes of the [N, C] view a value varies."""

from __future__ import annotations

from dataclasses import dataclass

Dim = int | str
"""A size: a number, or the symbol of a size that stays dynamic."""

ALL = "*"
"""Stands for every channel in `Extent.blocks`."""


@dataclass(frozen=True)
class Extent:
    """The axes a value varies over.

    rows: whether it differs from row to row (axis N).
    blocks: into how many equal blocks of channels it is constant: 1 (does not vary over C), a number of groups,
        or `ALL` (differs for each channel).
    """

    rows: bool
    blocks: Dim

    @property
    def is_full(self) -> bool:
        return self.rows and self.blocks == ALL

    @property
    def is_channel(self) -> bool:
        return not self.rows and self.blocks == ALL

    @property
    def is_scalar(self) -> bool:
        return not self.rows and self.blocks == 1

    @property
    def is_segment(self) -> bool:
        """One value for each row, or for each group of channels in a row."""
        return self.rows and self.blocks != ALL

    def __str__(self) -> str:
        axes = (["N"] if self.rows else []) + (
            [] if self.blocks == 1 else ["C" if self.blocks == ALL else str(self.blocks)]
        )
        return f"[{', '.join(axes)}]"


FULL = Extent(True, ALL)
CHANNEL = Extent(False, ALL)
ROW = Extent(True, 1)
SCALAR = Extent(False, 1)


def segment(groups: Dim) -> Extent:
    """One value for each of `groups` blocks of channels in each row."""
    return Extent(True, groups)


def broadcast(*extents: Extent) -> Extent:
    """The extent of an element-wise result of values with these extents."""
    blocks: Dim = 1
    for extent in extents:
        if extent.blocks == 1 or extent.blocks == blocks:
            continue
        blocks = extent.blocks if blocks == 1 else ALL
    return Extent(any(extent.rows for extent in extents), blocks)
