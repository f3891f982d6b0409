"""Between images and rows: steps that change which dimensions values have. PyTorch calls them."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.shape import Role, Shape, Sizes
from fusegen.ir.axes import Dim
from fusegen.ops.step import Step
from fusegen.spec.arguments import Dimension
from fusegen.spec.base import NO_TRUTH, Given, meaning


class Flatten(Step):
    """torch.flatten(x, 1): rows of all elements of an image. PyTorch calls it."""

    op: Literal["flatten"]
    features: Annotated[
        Given[Dimension], meaning("the width of the rows, for what is behind: channels times positions", 2048)
    ] = None
    formula = "[batch, channels, *positions] as [batch, channels * positions]"
    width_key = "features"
    has_kernels = False
    matrix_only = "never"

    @property
    def is_over_positions(self) -> bool:
        return True

    def check_call(self, chain: ChainBuilder) -> None:
        if not chain.shape.spatial:
            chain.refuse("FG308", "flatten is of images: values are [rows, channels] here", "op")
        if self.features is None:
            return
        wanted = chain.symbols.typical(chain.symbols.size(self.features, "features"))
        given = [chain.symbols.typical(size) for size in chain.shape.sizes(Role.CHANNEL, Role.POSITION)]
        known = [size for size in given if size is not None]
        if wanted is not None and len(known) == len(given) and math.prod(known) != wanted:
            message = f"the rows have {math.prod(known)} elements, {' * '.join(map(str, known))}, and not {wanted}"
            chain.refuse("FG303", message, "features")

    def shape_behind(self, shape: Shape, sizes: Sizes) -> Shape | None:
        if not shape.spatial:
            return shape
        found = [None if size is None else sizes.number(size) for size in shape.sizes(Role.CHANNEL, Role.POSITION)]
        known = [size for size in found if size is not None]
        if len(known) < len(found):
            return None
        width = sizes.named(math.prod(known), Role.CHANNEL, 0, shape.channels)
        return shape.with_channels(width).with_positions(())

    @property
    def result_width(self) -> Dim | None:
        return self.features

    def spatial_behind(self, spatial: int) -> int:
        return 0

    def keeps_format(self, spatial: int) -> bool:
        return False

    def eager(self, x: str) -> str:
        return f"torch.flatten({x}, 1)"


class Unsqueeze(Step):
    """Rows as images of one position, which broadcast to others. PyTorch calls it."""

    op: Literal["unsqueeze"]
    positions: Annotated[
        Literal[1, 2, 3], NO_TRUTH, meaning("how many dimensions of positions the result has, of one position each", 2)
    ]
    formula = "[batch, channels] as [batch, channels, 1, 1]"
    has_kernels = False
    matrix_only = "never"

    @property
    def is_over_positions(self) -> bool:
        return True

    def is_of(self, spatial: int) -> bool:
        return not spatial

    def check_call(self, chain: ChainBuilder) -> None:
        if chain.shape.spatial or chain.has_leading:
            chain.refuse("FG308", "unsqueeze makes images of values [batch, channels]", "op")

    def shape_behind(self, shape: Shape, sizes: Sizes) -> Shape | None:
        ones = (sizes.named(1, Role.POSITION, index, None) for index in range(self.positions))
        return shape.with_positions(ones)

    def spatial_behind(self, spatial: int) -> int:
        return self.positions

    def eager(self, x: str) -> str:
        return f"{x}[:, :, {', '.join(['None'] * self.positions)}]"


STEPS = (Flatten, Unsqueeze)
