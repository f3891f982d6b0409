"""What a chain may begin with: a product with a weight, a convolution, or a product for each element of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from fusegen.chain.windows import positions_of
from fusegen.ir.axes import Dim
from fusegen.ir.multiples import value_of

Sizing = int | str
"""A size of a convolution in one dimension of positions: a number, or an argument of type int."""


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """The layer or product that the chain begins with: its result is the leaf that enters the graph's tail.

    source: the module's input that the anchor takes. result: what the ops call the result. width: the channels of the
    source. channels: those of the result. attribute: where the module holds the weight, such as "fc.weight"; None
    without one. weight: what a call names the weight.
    """

    source: str
    result: str
    width: Dim
    channels: Dim
    attribute: str | None = None
    weight: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The module's inputs that the forward pass multiplies, and the backward pass reads again."""
        return (self.source,)

    def weight_elements(self, symbols: Mapping[str, int]) -> int:
        """How many elements the weight has for these values of the spec's symbols and arguments; 0 without one."""
        return value_of(self.width, symbols) * value_of(self.channels, symbols) if self.attribute else 0

    def positions(self, given: Sequence[int], number: Callable[[Sizing], int]) -> tuple[int, ...]:
        """The sizes of the result's positions for those of the source. number: what a size of the spec stands for."""
        return tuple(given)


@dataclass(frozen=True, kw_only=True)
class Contraction(Anchor):
    """The matrix product of the source with a weight, which the package's own ops make.

    name: the linear layer the weight belongs to, or the weight where that is the module's own parameter. operand: what
    the ops call the source. by_columns: whether the weight is [width, channels].
    """

    name: str
    operand: str
    attribute: str
    by_columns: bool = False


@dataclass(frozen=True, kw_only=True)
class Convolution(Anchor):
    """A convolution, which PyTorch's own op makes in front of the tail's. The graph has its result as [rows, channels].

    name: the layer. kernel_size and the next four have an entry for each dimension of positions. same: whether padding
    is "same".
    """

    name: str
    dimensions: int
    transposed: bool
    groups: Sizing
    kernel_size: tuple[Sizing, ...]
    stride: tuple[Sizing, ...]
    padding: tuple[Sizing, ...]
    dilation: tuple[Sizing, ...]
    output_padding: tuple[Sizing, ...]
    same: bool

    @property
    def is_depthwise(self) -> bool:
        """Whether the spec says that each channel of the input is a group."""
        return not self.transposed and self.groups == self.width != 1

    @property
    def may_have_few_channels(self) -> bool:
        """Whether the spec leaves open, or says, that support/few_channels.py makes the forward pass in 16 bits."""
        ones = (self.groups, *self.stride, *self.dilation)
        sizes = [size for size in self.kernel_size if isinstance(size, int)]
        is_small = len(sizes) == len(self.kernel_size) and prod(sizes) < 9
        if self.transposed or self.is_depthwise or is_small:
            return False
        if any(isinstance(each, int) and each > 1 for each in ones):
            return False
        channels, made = self.width, self.channels
        if not isinstance(channels, int):
            return True
        is_odd = 1 < channels < 256 and (channels < 32 or channels % 16 > 0)
        return is_odd and not (isinstance(made, int) and made < -(-channels // 32) * 32)

    @property
    def is_product(self) -> bool:
        """Whether the spec says that each position of the result is of the same one of the input, and all channels."""
        ones, nothing = {*self.kernel_size, *self.stride, self.groups}, {*self.padding, *self.output_padding}
        return ones == {1} and nothing == {0}

    def weight_elements(self, symbols: Mapping[str, int]) -> int:
        kernel = prod(value_of(each, symbols) for each in self.kernel_size)
        return super().weight_elements(symbols) * kernel // value_of(self.groups, symbols)

    def positions(self, given: Sequence[int], number: Callable[[Sizing], int]) -> tuple[int, ...]:
        """As PyTorch computes them."""
        if self.same:
            return tuple(given)
        options = (self.kernel_size, self.stride, self.padding, self.dilation, self.output_padding)
        return positions_of(given, [[*map(number, each)] for each in options], self.transposed)


@dataclass(frozen=True, kw_only=True)
class Batched(Anchor):
    """A product for each element of the batch, which PyTorch's own op makes. The graph has its result as [rows,
    channels].

    source, other: the module's inputs, [batch, rows, width] and [batch, width, channels]. transposed: whether the other
    has its last two dimensions exchanged. rows: those of one element of the batch.
    """

    other: str
    transposed: bool
    batch: Dim
    rows: Dim

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.source, self.other)
