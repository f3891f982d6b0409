"""Convolutions, with each of which a region begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.windows import positions_of
from fusegen.ir.axes import CHANNEL, Dim
from fusegen.ir.graph import Node
from fusegen.ops import window
from fusegen.ops.step import Dtypes
from fusegen.spec.arguments import Width
from fusegen.spec.base import PositiveInt, meaning
from fusegen.spec.names import AttributeName, Identifier


class Convolving(window.OfWindows):
    """What both kinds have in common. transposed: which of them it is."""

    op: str
    name: Annotated[AttributeName, meaning("the attribute of the module that holds the layer", "conv")]
    out_channels: Annotated[Width, meaning("the channels of the result", "hidden")]
    kernel_size: Annotated[
        window.Extents,
        meaning("positions that a result sees: a number or an argument of type int, or a list of them", 3),
    ]
    stride: Annotated[window.Extents, meaning("the step from one result to the next, likewise", 2)] = 1
    dilation: Annotated[window.Extents, meaning("the distance of the positions that a result sees, likewise", 2)] = 1
    groups: Annotated[
        PositiveInt | Identifier,
        meaning("channels see those of their own group alone; a number, or an argument of type int or dim", 4),
    ] = 1
    bias: Annotated[bool, meaning("whether a bias is added", False)] = True
    anchor = True
    transposed: ClassVar[bool] = False
    module = "nn.Conv2d"
    tensors = ("weight", "bias")
    owns = ("result",)
    matrix_only = "never"

    @property
    def spatial(self) -> int:
        return int(self.op[-2])

    def submodule(self, spatial: int) -> str:
        return f"nn.Conv{'Transpose' if self.transposed else ''}{self.spatial}d"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        result = chain.convolve(self, x)
        if not self.bias:
            return result
        bias = chain.owned_parameter(self.name, "bias", (chain.channels,), CHANNEL)
        return chain.graph.add("add", result, bias, name=self.name)

    def eager(self, x: str) -> str:
        return f"self.{self.name}({x})"

    def construct_over(self, channels: Dim, spatial: int) -> list[str]:
        options = [f"stride={window.text(self.stride)}", *self._padding(), f"dilation={window.text(self.dilation)}"]
        options.append(f"groups={self.groups}")
        left_out = ("stride=1", "padding=0", "output_padding=0", "dilation=1", "groups=1", 'padding_mode="zeros"')
        options = [option for option in options if option not in left_out]
        options += [] if self.bias else ["bias=False"]
        arguments = ", ".join(
            [str(channels), str(self.out_channels), window.text(self.kernel_size), *options, "**_factory"]
        )
        return window.construction(self.name, self.submodule(spatial), arguments)

    def result_dtype(self, running: str, dtypes: Dtypes) -> str:
        return dtypes.activation

    @property
    def padding_word(self) -> str | None:
        """The padding where that is `same` or `valid`, which are words there and not names of arguments."""
        return None

    def positions_behind(self, given: Sequence[int], number: window.Number) -> tuple[int, ...] | None:
        padding = 0 if self.padding_word is not None else getattr(self, "padding", 0)
        output_padding = getattr(self, "output_padding", 0)
        options = (self.kernel_size, self.stride, padding, self.dilation, output_padding)
        known = window.known(options, len(given), number)
        if known is None or not given or min(known[1]) < 1:
            return None
        return tuple(given) if self.padding_word == "same" else positions_of(given, known, self.transposed)

    def _padding(self) -> list[str]:
        """The options that only one of both kinds has."""
        raise NotImplementedError


class Convolution(Convolving):
    """nn.Conv1d, nn.Conv2d, nn.Conv3d. PyTorch makes it, in channels_last; the kernels add the bias. Each begins a
    region."""

    op: Literal["conv1d", "conv2d", "conv3d"]
    padding: Annotated[
        Literal["same", "valid"] | window.Counts,
        meaning("positions added on each side, likewise; or 'same', 'valid'", 1),
    ] = 0
    padding_mode: Annotated[
        Literal["zeros", "reflect", "replicate", "circular"], meaning("what is there", "circular")
    ] = "zeros"
    formula = "convolution(x, W) + b"

    @property
    def padding_word(self) -> str | None:
        return self.padding if self.padding in ("same", "valid") else None

    def _padding(self) -> list[str]:
        padding = window.text(self.padding) if self.padding_word is None else f'"{self.padding}"'
        return [f"padding={padding}", f'padding_mode="{self.padding_mode}"']


class ConvolutionTranspose(Convolving):
    """nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d. As conv2d."""

    op: Literal["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]
    padding: Annotated[window.Counts, meaning("positions left out on each side, likewise", 1)] = 0
    output_padding: Annotated[window.Counts, meaning("positions added on one side of the result, likewise", 1)] = 0
    formula = "transposed convolution(x, W) + b"
    transposed = True

    def _padding(self) -> list[str]:
        return [f"padding={window.text(self.padding)}", f"output_padding={window.text(self.output_padding)}"]


STEPS = (Convolution, ConvolutionTranspose)
