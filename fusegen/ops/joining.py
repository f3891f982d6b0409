"""Channels of several values as those of one, and some of the channels of one. PyTorch calls both."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.shape import Role, Shape, Sizes
from fusegen.ir.axes import Dim
from fusegen.ops import window
from fusegen.ops.step import Step, size_text
from fusegen.spec.arguments import Dimension
from fusegen.spec.base import Given, Listing, meaning
from fusegen.spec.names import Identifier

_MOST = 16


class _OverChannels(Step):
    """What both have in common."""

    dim: Annotated[Given[Literal[1]], meaning("1: over the channels of images, which are dimension 1", 1)] = None
    has_kernels = False
    matrix_only = "with dim: 1"

    def needs_matrix(self) -> bool:
        return self.dim == 1

    def not_over_positions(self) -> None:
        return None

    def needs_batch(self, spatial: int) -> bool:
        return spatial > 0


class Cat(_OverChannels):
    """torch.cat over the channels. PyTorch calls it."""

    op: Literal["cat"]
    values: Annotated[
        Listing[Identifier],
        Field(min_length=1, max_length=_MOST),
        meaning("saved values and inputs whose channels come behind those of x, in order", ["x"]),
    ]
    channels: Annotated[Given[Dimension], meaning("those of the result, for what is behind", 64)] = None
    formula = "the channels of x, then those of each value"
    width_key = "channels"

    @property
    def further_values(self) -> tuple[str, ...]:
        return self.values

    @property
    def result_width(self) -> Dim | None:
        return self.channels

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


class Narrow(_OverChannels):
    """torch.narrow over the channels. PyTorch calls it."""

    op: Literal["narrow"]
    start: Annotated[window.Count | Identifier, meaning("the first of the channels: a number or a symbol of dims", 8)]
    length: Annotated[Dimension, meaning("how many channels there are from it on", 24)]
    formula = "some channels of x, that lie behind each other"
    width_key = "length"
    width_follows = False

    @property
    def result_width(self) -> Dim:
        return self.length

    def lines(self, x: str, local: str, spatial: int) -> tuple[list[str], str]:
        result, dim = self.save or local, 1 if spatial else -1
        return [f"{result} = {x}.narrow({dim}, {size_text(self.start)}, {size_text(self.length)})"], result

    def shape_behind(self, shape: Shape, sizes: Sizes) -> Shape | None:
        length = sizes.number(self.length)
        return None if length is None else shape.with_channels(sizes.named(length, Role.CHANNEL, 0, self.length))

    def check_call(self, chain: ChainBuilder) -> None:
        symbols = chain.symbols
        start, length = symbols.size(self.start, "start"), symbols.size(self.length, "length")
        for size, key in ((start, "start"), (length, "length")):
            symbols.constructed((size,), key)
        first, count, width = (symbols.typical(size) for size in (start, length, chain.channels))
        if first is not None and count is not None and width is not None and first + count > width:
            chain.refuse("FG303", f"there are {width} channels, and not {count} from {first} on", "length")


STEPS = (Cat, Narrow)
