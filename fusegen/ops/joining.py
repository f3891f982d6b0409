"""Several values as one, whose channels come behind each other. PyTorch calls it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.shape import Role, Shape, Sizes
from fusegen.ir.axes import Dim
from fusegen.ops.step import Step
from fusegen.spec.arguments import Dimension
from fusegen.spec.base import Given, Listing, meaning
from fusegen.spec.names import Identifier

_MOST = 16


class Cat(Step):
    """torch.cat over the channels. PyTorch calls it."""

    op: Literal["cat"]
    values: Annotated[
        Listing[Identifier],
        Field(min_length=1, max_length=_MOST),
        meaning("saved values and inputs whose channels come behind those of x, in order", ["x"]),
    ]
    channels: Annotated[Given[Dimension], meaning("those of the result, for what is behind", 64)] = None
    dim: Annotated[Given[Literal[1]], meaning("1: over the channels of images, which are dimension 1", 1)] = None
    formula = "the channels of x, then those of each value"
    width_key = "channels"
    has_kernels = False
    matrix_only = "with dim: 1"

    @property
    def further_values(self) -> tuple[str, ...]:
        return self.values

    @property
    def result_width(self) -> Dim | None:
        return self.channels

    def needs_matrix(self) -> bool:
        return self.dim == 1

    def not_over_positions(self) -> None:
        return None

    def needs_batch(self, spatial: int) -> bool:
        return spatial > 0

    def lines(self, x: str, local: str, spatial: int) -> tuple[list[str], str]:
        result = self.save or local
        return [f"{result} = torch.cat(({', '.join((x, *self.values))}), dim={1 if spatial else -1})"], result

    def shape_behind(self, shape: Shape, sizes: Sizes) -> Shape | None:
        at = shape.roles.index(Role.CHANNEL)
        others = [sizes.shape(name) for name in self.values]
        given = [shape.channels, *(other[at] if len(other) == len(shape.axes) else None for other in others)]
        known = [None if size is None else sizes.number(size) for size in given]
        numbers = [size for size in known if size is not None]
        if len(numbers) < len(known):
            return None
        return shape.with_channels(sizes.named(sum(numbers), Role.CHANNEL, 0, shape.channels))

    def check_call(self, chain: ChainBuilder) -> None:
        here, typical = chain.shape.sizes(), chain.symbols.typical
        at, width = chain.shape.roles.index(Role.CHANNEL), typical(chain.channels)
        for place, name in enumerate(self.values):
            other = chain.shape_of_input(name, ("values", place))
            if other is None:
                continue
            pairs = [(typical(one), typical(mine)) for one, mine in zip(other, here, strict=False)]
            fits = len(other) == len(here) and all(
                index == at or None in pair or pair[0] == pair[1] for index, pair in enumerate(pairs)
            )
            if not fits:
                message = f"'{name}' of shape {list(other)} does not fit {list(here)}: only the channels may be others"
                chain.refuse("FG303", message, ("values", place))
            more = pairs[at][0] if fits else None
            width = None if width is None or more is None else width + more
        wanted = None if self.channels is None else typical(chain.symbols.size(self.channels, "channels"))
        if None not in (wanted, width) and wanted != width:
            chain.refuse("FG303", f"the result has {width} channels, and not {wanted}", "channels")


STEPS = (Cat,)
