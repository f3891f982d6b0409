"""Pooling over windows of positions: kernels store the means or the largest of windows, PyTorch calls other layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.result import Pool
from fusegen.chain.shape import Role
from fusegen.chain.windows import extent
from fusegen.ir.axes import SAMPLE
from fusegen.ir.functions import reduced
from fusegen.ir.graph import Node
from fusegen.ops import window
from fusegen.ops.called_layer import CalledLayer
from fusegen.spec.base import PositiveInt, meaning
from fusegen.spec.names import Identifier


class Pooling(CalledLayer):
    """What all kinds have in common."""

    numbers = ("norm_type",)

    @property
    def spatial(self) -> int:
        return int(self.op[-2])

    def keeps_format(self, spatial: int) -> bool:
        return self.spatial == 2 or self.op == "max_pool3d"  # other kinds give contiguous results

    def submodule(self, spatial: int) -> str:
        return f"nn.{self.layer}{self.spatial}d"

    def is_of(self, spatial: int) -> bool:
        return super().is_of(spatial) or (self.spatial == 1 and not spatial)

    def needs_batch(self, spatial: int) -> bool:
        return not spatial  # as PyTorch's pooling of [batch, channels, positions] takes [batch, features], too

    def check_call(self, chain: ChainBuilder) -> None:
        if len(chain.shape.sizes(Role.ROW)) > 2:
            chain.refuse("FG308", f"{self.op} of features takes values of two or three dimensions", "op")
        super().check_call(chain)

    def check_positions(self, chain: ChainBuilder, given: Sequence[int]) -> None:
        found = self.positions_behind(given, chain.symbols.typical)
        if found is None:
            chain.refuse("FG205", f"{self.op} takes windows of at least one position, and steps of at least one", "op")
        elif min(found) < 1:
            chain.refuse("FG303", f"the result would have no positions: {list(found)} of {list(given)}", "op")


class _OfWindows(Pooling):
    """Pooling whose windows have a size."""

    kernel_size: Annotated[
        window.Extents,
        meaning("positions that a result sees: a number or an argument of type int, or a list of them", 2),
    ]
    stride: Annotated[
        window.Extents | None,
        meaning("the step from one result to the next, likewise; without it the kernel's size", 2),
    ] = None
    ceil_mode: Annotated[bool, meaning("whether a last window may reach beyond the positions", True)] = False

    def positions_behind(self, given: Sequence[int], number: window.Number) -> tuple[int, ...] | None:
        stride = self.kernel_size if self.stride is None else self.stride
        options = (self.kernel_size, stride, getattr(self, "padding", 0), getattr(self, "dilation", 1))
        known = window.known(options, len(given), number)
        if known is None or not given or min(*known[1], *known[3]) < 1:
            return None
        return tuple(extent(*each, ceil_mode=self.ceil_mode) for each in zip(given, *known, strict=True))


class _InKernels(_OfWindows):
    """Pooling with which a region of images ends. Of the features of rows PyTorch calls it."""

    largest: ClassVar[bool]
    needs_elements = True

    def stores_windows(self, spatial: int) -> bool:
        return spatial == self.spatial

    def is_called(self, spatial: int) -> bool:
        return not self.stores_windows(spatial)

    def not_over_positions(self) -> None:
        return None

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        self.check_call(chain)
        chain.pool = Pool(self.name, self.largest, self.positions_behind)
        return x


class MaxPooling(_InKernels):
    """nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d."""

    op: Literal["max_pool1d", "max_pool2d", "max_pool3d"]
    padding: Annotated[window.Counts, meaning("positions added on each side, which no result is of, likewise", 1)] = 0
    dilation: Annotated[window.Extents, meaning("the distance of the positions that a result sees, likewise", 2)] = 1
    formula = "the largest x of a window"
    largest = True
    layer = "MaxPool"
    options = {"kernel_size": None, "stride": (), "padding": 0, "dilation": 1, "ceil_mode": False}


class AveragePooling(_InKernels):
    """nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d."""

    op: Literal["avg_pool1d", "avg_pool2d", "avg_pool3d"]
    padding: Annotated[window.Counts, meaning("zeros added on each side, likewise", 1)] = 0
    count_include_pad: Annotated[bool, meaning("whether these zeros count", False)] = True
    divisor_override: Annotated[
        PositiveInt | None, meaning("what sums are divided by, in place of the positions of a window", 3)
    ] = None
    formula = "the mean of x in a window"
    largest = False
    layer = "AvgPool"
    options = {
        **{"kernel_size": None, "stride": (), "padding": 0, "ceil_mode": False},
        **{"count_include_pad": True, "divisor_override": ()},
    }


class PowerPooling(_OfWindows):
    """nn.LPPool1d, nn.LPPool2d, nn.LPPool3d. PyTorch calls it."""

    op: Literal["lp_pool1d", "lp_pool2d", "lp_pool3d"]
    norm_type: Annotated[float | Identifier, meaning("p: a number, or an argument of type int or float", 2)]
    formula = "(sum of x**p in a window)**(1/p)"
    layer = "LPPool"
    options = {"norm_type": None, "kernel_size": None, "stride": (), "ceil_mode": False}


class AdaptivePooling(Pooling):
    """nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d and so on. PyTorch calls it, but the mean of all positions."""

    op: Literal[
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool1d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
    ]
    output_size: Annotated[
        window.Extents, meaning("positions of the result: a number or an argument of type int, or a list of them", 1)
    ]
    formula = "the mean, or the largest, x of a part of the positions"
    options = {"output_size": None}
    needs_elements = True
    passes = 1

    def is_of_samples(self, spatial: int) -> bool:
        sizes = self.output_size if isinstance(self.output_size, tuple) else (self.output_size,)
        return "avg" in self.op and self.spatial == spatial and {*sizes} == {1}

    def is_called(self, spatial: int) -> bool:
        return not self.is_of_samples(spatial)

    def not_over_positions(self) -> None:
        return None

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        chain.own(self.name)
        chain.keeps_positions = True
        return reduced.mean(chain.graph, x, SAMPLE, f"{self.name}_value")

    def submodule(self, spatial: int) -> str:
        return f"nn.Adaptive{'Avg' if 'avg' in self.op else 'Max'}Pool{self.spatial}d"

    def positions_behind(self, given: Sequence[int], number: window.Number) -> tuple[int, ...] | None:
        return window.entries(self.output_size, len(given), number)


STEPS = (MaxPooling, AveragePooling, PowerPooling, AdaptivePooling)
