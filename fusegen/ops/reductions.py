"""Reductions over the channels of a row, and what is made of them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from fusegen.ir.axes import CHANNEL
from fusegen.ir.functions import reduced, softmax
from fusegen.ir.graph import Node
from fusegen.ops.step import Step
from fusegen.spec.base import meaning


class OverChannels(Step):
    """An op over the channels of each row.

    make: adds what the op makes of a node to a graph, for each element of some axes, under a name. pytorch: the op
    in PyTorch, of {x} over the dimension {dim}.
    """

    op: str
    dim: Annotated[Literal[-1, 1], meaning("the dimension of [rows, channels]: the channels", 1)] = -1

    make: ClassVar[reduced.Reduce]
    pytorch: ClassVar[str]
    needs_elements = True
    matrix_only = "with dim: 1"

    def needs_matrix(self) -> bool:
        return self.dim != -1

    def not_over_positions(self) -> str | None:
        return None if self.dim == 1 else "dimension -1 is one of positions there, 'dim: 1' the channels"

    def build(self, chain, x: Node) -> Node:
        return type(self).make(chain.graph, x, chain.graph.view - CHANNEL, f"{self.op}_value")

    def eager(self, x: str) -> str:
        return self.pytorch.format(x=x, dim=f"dim={self.dim}")


class Softmax(OverChannels):
    """F.softmax over the channels."""

    op: Literal["softmax"]
    formula = "exp(x) / sum(exp(x)), by row"
    autocast = "float32"
    passes = 2  # the largest, then the sum
    make = staticmethod(softmax.softmax)
    pytorch = "F.softmax({x}, {dim})"


class LogSoftmax(OverChannels):
    """F.log_softmax over the channels."""

    op: Literal["log_softmax"]
    formula = "x - log(sum(exp(x))), by row"
    autocast = "float32"
    passes = 2
    make = staticmethod(softmax.log_softmax)
    pytorch = "F.log_softmax({x}, {dim})"


class ToRows(OverChannels):
    """A reduction to one value for each row. Later steps combine it with values of full size."""

    keepdim: Annotated[Literal[True], meaning("the result is [rows, 1]", True)]

    passes = 1


class Sum(ToRows):
    """The sum over the channels."""

    op: Literal["sum"]
    formula = "sum(x), by row"
    autocast = "float32"
    make = staticmethod(reduced.total)
    pytorch = "{x}.sum({dim}, keepdim=True)"


class Mean(ToRows):
    """The mean over the channels."""

    op: Literal["mean"]
    formula = "sum(x) / channels, by row"
    make = staticmethod(reduced.mean)
    pytorch = "{x}.mean({dim}, keepdim=True)"


class Max(ToRows):
    """The largest over the channels, torch.max(x, dim).values. The gradient goes to the first of the largest."""

    op: Literal["max"]
    formula = "max(x), by row"
    make = staticmethod(reduced.largest)
    pytorch = "{x}.max({dim}, keepdim=True).values"


class Min(ToRows):
    """The smallest over the channels, torch.min(x, dim).values. The gradient goes to the first of the smallest."""

    op: Literal["min"]
    formula = "min(x), by row"
    make = staticmethod(reduced.smallest)
    pytorch = "{x}.min({dim}, keepdim=True).values"


class Amax(ToRows):
    """torch.amax over the channels. All of the largest share the gradient."""

    op: Literal["amax"]
    formula = "max(x), by row"
    stores_operand = True
    passes = 2  # backward: the ties, then the gradient's sum
    make = staticmethod(reduced.tied_largest)
    pytorch = "{x}.amax({dim}, keepdim=True)"


class Amin(ToRows):
    """torch.amin over the channels. All of the smallest share the gradient."""

    op: Literal["amin"]
    formula = "min(x), by row"
    stores_operand = True
    passes = 2
    make = staticmethod(reduced.tied_smallest)
    pytorch = "{x}.amin({dim}, keepdim=True)"


class Logsumexp(ToRows):
    """torch.logsumexp over the channels."""

    op: Literal["logsumexp"]
    formula = "log(sum(exp(x))), by row"
    autocast = "float32"
    passes = 2
    make = staticmethod(softmax.logsumexp)
    pytorch = "torch.logsumexp({x}, {dim}, keepdim=True)"


STEPS = (Softmax, LogSoftmax, Sum, Mean, Max, Min, Amax, Amin, Logsumexp)
