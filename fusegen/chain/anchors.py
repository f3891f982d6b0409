"""What a chain may begin with: a matrix product, a convolution, or a product for each element of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from fusegen.ir.axes import Dim


@dataclass(frozen=True)
class Contraction:
    """The matrix product that the chain begins with: its result is the graph's leaf `product`.

    name: the linear layer it belongs to, or the weight where that is the module's own parameter. source: the module's
    input that it multiplies. operand, weight, product: what the ops call that input, the weight and the result.
    attribute: where the module holds the weight. by_columns: whether that is [in_features, out_features].
    """

    name: str
    source: str
    in_features: Dim
    out_features: Dim
    operand: str
    weight: str
    product: str
    attribute: str
    by_columns: bool = False


Sizing = int | str
"""A size of a convolution in one dimension of positions: a number, or an argument of type int."""


@dataclass(frozen=True)
class Convolution:
    """The convolution that the chain begins with: its result is the graph's leaf `result`, as [rows, channels].

    PyTorch's own op makes it, in front of the tail's. name: the layer. source: the module's input that it takes.
    weight: what a call names the layer's weight. kernel_size and the next four have an entry for each dimension of
    positions.
    same: whether padding is "same".
    """

    name: str
    source: str
    dimensions: int
    transposed: bool
    in_channels: Dim
    out_channels: Dim
    groups: Sizing
    kernel_size: tuple[Sizing, ...]
    stride: tuple[Sizing, ...]
    padding: tuple[Sizing, ...]
    dilation: tuple[Sizing, ...]
    output_padding: tuple[Sizing, ...]
    same: bool
    weight: str
    result: str

    @property
    def is_depthwise(self) -> bool:
        """Whether the spec says that each channel of the input is a group."""
        return not self.transposed and self.groups == self.in_channels != 1

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
        channels, made = self.in_channels, self.out_channels
        if not isinstance(channels, int):
            return True
        is_odd = 1 < channels < 256 and (channels < 32 or channels % 16 > 0)
        return is_odd and not (isinstance(made, int) and made < -(-channels // 32) * 32)

    @property
    def is_product(self) -> bool:
        """Whether the spec says that each position of the result is of the same one of the input, and all channels."""
        ones, nothing = {*self.kernel_size, *self.stride, self.groups}, {*self.padding, *self.output_padding}
        return ones == {1} and nothing == {0}

    def positions(self, given: Sequence[int], number: Callable[[Sizing], int]) -> tuple[int, ...]:
        """The sizes of the result for those of an input, as PyTorch computes them. number: what an entry stands for."""
        if self.same:
            return tuple(given)
        found = []
        options = (self.kernel_size, self.stride, self.padding, self.dilation, self.output_padding)
        for size, *each in zip(given, *options, strict=True):
            kernel, stride, padding, dilation, output_padding = map(number, each)
            reach = dilation * (kernel - 1) + 1
            if self.transposed:
                found.append((size - 1) * stride - 2 * padding + reach + output_padding)
            else:
                found.append((size + 2 * padding - reach) // stride + 1)
        return tuple(found)


@dataclass(frozen=True)
class Batched:
    """The product of matrices that the chain begins with: its result is the graph's leaf `result`, as [rows, channels].

    PyTorch's own op makes it, in front of the tail's, for each element of the batch. source, other: the module's inputs
    that it multiplies, [batch, rows, in_features] and [batch, in_features, channels]. transposed: whether the other has
    its last two dimensions exchanged.
    """

    source: str
    other: str
    transposed: bool
    batch: Dim
    rows: Dim
    in_features: Dim
    out_features: Dim
    result: str
