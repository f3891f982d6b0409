"""Images of other sizes: interpolation, and channels as positions. PyTorch calls them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.shape import Role, Shape, Sizes
from fusegen.ir.axes import Dim
from fusegen.ops import window
from fusegen.ops.called_layer import CalledLayer
from fusegen.ops.scalars import Positive
from fusegen.spec.arguments import MAX_RANK, Dimension
from fusegen.spec.base import Given, Listing, PositiveInt, meaning
from fusegen.spec.names import Identifier

_Factors = Positive | Identifier | Annotated[Listing[Positive | Identifier], Field(min_length=1, max_length=MAX_RANK)]
DIMENSIONS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
"""The dimensions of positions that a mode is for; others are for any number."""


class _OfImages(CalledLayer):
    """A layer that takes images alone."""

    @property
    def is_over_positions(self) -> bool:
        return True

    def submodule(self, spatial: int) -> str:
        return self.module

    def check_call(self, chain: ChainBuilder) -> None:
        if chain.shape.spatial:
            super().check_call(chain)
        else:
            chain.refuse("FG308", f"{self.op} is of images: values are [rows, channels] here", "op")


class Upsample(_OfImages):
    """nn.Upsample. PyTorch calls it."""

    op: Literal["upsample"]
    size: Annotated[
        Given[window.Extents], meaning("positions of the result: a number or an argument of type int, or a list", 28)
    ] = None
    scale_factor: Annotated[
        Given[_Factors], meaning("what positions are multiplied by: a number or an argument of type int, or a list", 2)
    ] = None
    mode: Annotated[
        Literal["nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear"],
        meaning("which positions a result is of", "bilinear"),
    ] = "nearest"
    align_corners: Annotated[
        Given[bool], meaning("of the modes of lines and curves, whether the corners stay what they are", True)
    ] = None
    formula = "x at positions between its own"
    module = "nn.Upsample"
    options = {"size": (), "scale_factor": (), "mode": "nearest", "align_corners": ()}
    words = ("mode",)

    def dimensions(self, chain: ChainBuilder) -> int:
        return chain.shape.spatial

    def keeps_format(self, spatial: int) -> bool:
        return spatial == 2

    def check_call(self, chain: ChainBuilder) -> None:
        super().check_call(chain)
        spatial = chain.shape.spatial
        if (self.size is None) == (self.scale_factor is None):
            chain.refuse("FG307", "upsample has either a size or a scale_factor", "size" if self.size else "op")
        if spatial and DIMENSIONS.get(self.mode, spatial) != spatial:
            takes = DIMENSIONS[self.mode]
            chain.refuse("FG308", f"mode {self.mode} takes {takes} dimensions of positions, not {spatial}", "mode")
        if self.align_corners is not None and self.mode not in DIMENSIONS:
            chain.refuse("FG308", f"mode {self.mode} has no align_corners", "align_corners")

    def check_positions(self, chain: ChainBuilder, given: Sequence[int]) -> None:
        found = self.positions_behind(given, chain.symbols.typical)
        if found is not None and min(found) < 1:
            chain.refuse("FG303", f"the result would have no positions: {list(found)} of {list(given)}", "scale_factor")

    def positions_behind(self, given: Sequence[int], number: window.Number) -> tuple[int, ...] | None:
        if self.size is not None:
            return window.entries(self.size, len(given), number)
        factors = self.scale_factor if isinstance(self.scale_factor, tuple) else (self.scale_factor,) * len(given)
        known = [number(each) if isinstance(each, str) else each for each in factors]
        if None in known or len(known) != len(given):
            return None
        return tuple(math.floor(size * factor) for size, factor in zip(given, known, strict=True) if factor is not None)


class _Shuffle(_OfImages):
    """Channels as positions, or positions as channels."""

    channels: Dimension | None
    width_key = "channels"

    @property
    def spatial(self) -> int:
        return 2

    @property
    def key(self) -> str:
        """The key of its only option, the factor."""
        return next(iter(self.options))

    def keeps_format(self, spatial: int) -> bool:
        return False

    @property
    def result_width(self) -> Dim | None:
        return self.channels

    def sizes_behind(self, channels: int, positions: Sequence[int], factor: int) -> tuple[int, list[int]] | None:
        """Channels and positions of the result; None where there is none."""
        raise NotImplementedError

    def shape_behind(self, shape: Shape, sizes: Sizes) -> Shape | None:
        found = self._behind(shape, sizes.number)
        if found is None:
            return None
        width, positions = found
        given = shape.sizes(Role.POSITION)
        named = [sizes.named(size, Role.POSITION, at, given[at]) for at, size in enumerate(positions)]
        return shape.with_channels(sizes.named(width, Role.CHANNEL, 0, shape.channels)).with_positions(named)

    def _behind(self, shape: Shape, number: window.Number) -> tuple[int, list[int]] | None:
        of_image = (shape.channels, *shape.sizes(Role.POSITION))
        given = [None if size is None else number(size) for size in of_image]
        factor = number(getattr(self, self.key))
        if factor is None or None in given or len(given) != 3:
            return None
        channels, *positions = [size for size in given if size is not None]
        return self.sizes_behind(channels, positions, factor)

    def check_positions(self, chain: ChainBuilder, given: Sequence[int]) -> None:
        factor, channels = chain.symbols.typical(getattr(self, self.key)), chain.symbols.typical(chain.channels)
        if factor is None or channels is None:
            return
        found = self._behind(chain.shape, chain.symbols.typical)
        if found is None:
            message = f"{self.op} by {factor} does not divide {channels} channels of {' x '.join(map(str, given))}"
            chain.refuse("FG303", message, self.key)
            return
        wanted = None if self.channels is None else chain.symbols.typical(chain.symbols.size(self.channels, "channels"))
        if wanted not in (None, found[0]):
            chain.refuse("FG303", f"the result has {found[0]} channels, and not {wanted}", "channels")


class PixelShuffle(_Shuffle):
    """nn.PixelShuffle. PyTorch calls it."""

    op: Literal["pixel_shuffle"]
    upscale_factor: Annotated[
        PositiveInt | Identifier, meaning("what positions are multiplied by: a number or an argument of type int", 2)
    ]
    channels: Annotated[Given[Dimension], meaning("those of the result, for what is behind", 8)] = None
    formula = "[batch, channels * r * r, height, width] as [batch, channels, height * r, width * r]"
    module = "nn.PixelShuffle"
    options = {"upscale_factor": None}

    def sizes_behind(self, channels: int, positions: Sequence[int], factor: int) -> tuple[int, list[int]] | None:
        width, rest = divmod(channels, factor * factor)
        return None if rest else (width, [size * factor for size in positions])


class PixelUnshuffle(_Shuffle):
    """nn.PixelUnshuffle. PyTorch calls it."""

    op: Literal["pixel_unshuffle"]
    downscale_factor: Annotated[
        PositiveInt | Identifier, meaning("what positions are divided by: a number or an argument of type int", 2)
    ]
    channels: Annotated[Given[Dimension], meaning("those of the result, for what is behind", 128)] = None
    formula = "[batch, channels, height * r, width * r] as [batch, channels * r * r, height, width]"
    module = "nn.PixelUnshuffle"
    options = {"downscale_factor": None}

    def sizes_behind(self, channels: int, positions: Sequence[int], factor: int) -> tuple[int, list[int]] | None:
        if any(size % factor for size in positions):
            return None
        return channels * factor * factor, [size // factor for size in positions]


STEPS = (Upsample, PixelShuffle, PixelUnshuffle)
