"""Reductions over the channels of a row, and what is made of them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from fusegen.chain.builder import ChainBuilder
from fusegen.ir.axes import CHANNEL
from fusegen.ir.functions import reduced, softmax
from fusegen.ir.graph import Node
from fusegen.ops.scalars import Scalar, scalar_text
from fusegen.ops.step import Step
from fusegen.spec.base import NO_TRUTH, meaning


class OverChannels(Step):
    """An op over the channels of each row.

    make: adds what the op makes of a node to a graph, for each element of some axes, under a name. pytorch: the op
    in PyTorch, of {x} over the dimension {dim}.
    """

    op: str
    dim: Annotated[Literal[-1, 1], NO_TRUTH, meaning("the dimension of [rows, channels]: the channels", 1)] = -1

    make: ClassVar[reduced.Reduce]
    pytorch: ClassVar[str]
    needs_elements = True
    matrix_only = "with dim: 1"

    def needs_matrix(self) -> bool:
        return self.dim != -1

    def not_over_positions(self) -> str | None:
        return None if self.dim == 1 else "dimension -1 is one of positions there, 'dim: 1' the channels"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
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


class Softmin(OverChannels):
    """F.softmin over the channels."""

    op: Literal["softmin"]
    formula = "exp(-x) / sum(exp(-x)), by row"
    autocast = "float32"
    passes = 2
    make = staticmethod(softmax.softmin)
    pytorch = "F.softmin({x}, {dim})"


class LogSoftmax(OverChannels):
    """F.log_softmax over the channels."""

    op: Literal["log_softmax"]
    formula = "x - log(sum(exp(x))), by row"
    autocast = "float32"
    passes = 2
    make = staticmethod(softmax.log_softmax)
    pytorch = "F.log_softmax({x}, {dim})"


class ToRows(OverChannels):
    """A reduction to one value for each row: the chain's result, or what later steps go on with."""

    keepdim: Annotated[
        bool, meaning("the result is [rows, 1], which combines with [rows, channels]; false: [rows]", True)
    ]

    passes = 1
    # Whether of one channel it is that channel.
    keeps_one: ClassVar[bool] = True

    def takes_rows(self) -> bool:
        return self.keeps_one

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        return super().build(chain, x) if x.is_full else x

    @property
    def drops_channels(self) -> bool:
        return not self.keepdim

    def eager(self, x: str) -> str:
        return self.pytorch.format(x=x, dim=f"dim={self.dim}", keepdim=f"keepdim={self.keepdim}")


class Sum(ToRows):
    """The sum over the channels."""

    op: Literal["sum"]
    formula = "sum(x), by row"
    autocast = "float32"
    make = staticmethod(reduced.total)
    pytorch = "{x}.sum({dim}, {keepdim})"


class Mean(ToRows):
    """The mean over the channels."""

    op: Literal["mean"]
    formula = "sum(x) / channels, by row"
    make = staticmethod(reduced.mean)
    pytorch = "{x}.mean({dim}, {keepdim})"


class Max(ToRows):
    """The largest over the channels, torch.max(x, dim).values. The gradient goes to the first of the largest."""

    op: Literal["max"]
    formula = "max(x), by row"
    make = staticmethod(reduced.largest)
    pytorch = "{x}.max({dim}, {keepdim}).values"


class Min(ToRows):
    """The smallest over the channels, torch.min(x, dim).values. The gradient goes to the first of the smallest."""

    op: Literal["min"]
    formula = "min(x), by row"
    make = staticmethod(reduced.smallest)
    pytorch = "{x}.min({dim}, {keepdim}).values"


class Amax(ToRows):
    """torch.amax over the channels. All of the largest share the gradient."""

    op: Literal["amax"]
    formula = "max(x), by row"
    stores_operand = True
    passes = 2  # backward: the ties, then the gradient's sum
    make = staticmethod(reduced.tied_largest)
    pytorch = "{x}.amax({dim}, {keepdim})"


class Amin(ToRows):
    """torch.amin over the channels. All of the smallest share the gradient."""

    op: Literal["amin"]
    formula = "min(x), by row"
    stores_operand = True
    passes = 2
    make = staticmethod(reduced.tied_smallest)
    pytorch = "{x}.amin({dim}, {keepdim})"


class Logsumexp(ToRows):
    """torch.logsumexp over the channels."""

    op: Literal["logsumexp"]
    formula = "log(sum(exp(x))), by row"
    autocast = "float32"
    passes = 2
    make = staticmethod(softmax.logsumexp)
    pytorch = "torch.logsumexp({x}, {dim}, {keepdim})"


class Spread(ToRows):
    """A measure of the distances to the mean of a row."""

    correction: Annotated[
        Literal[0, 1], NO_TRUTH, meaning("what is subtracted from the number of channels that divides the squares", 0)
    ] = 1

    measure: ClassVar[reduced.Measure]
    keeps_one = False

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        measure = type(self).measure
        return measure(chain.graph, x, chain.graph.view - CHANNEL, f"{self.op}_value", self.correction)

    def eager(self, x: str) -> str:
        return f"{x}.{self.op}(dim={self.dim}, correction={self.correction}, keepdim={self.keepdim})"


class Var(Spread):
    """The variance over the channels."""

    op: Literal["var"]
    formula = "sum((x - mean)^2) / (channels - correction), by row"
    measure = staticmethod(reduced.variance)


class Std(Spread):
    """The standard deviation over the channels. The gradient is 0 where it is."""

    op: Literal["std"]
    formula = "sqrt(sum((x - mean)^2) / (channels - correction)), by row"
    measure = staticmethod(reduced.deviation)


class VectorNorm(ToRows):
    """torch.linalg.vector_norm over the channels. The gradient is 0 where it is."""

    op: Literal["norm"]
    p: Annotated[Literal[1, 2], NO_TRUTH, meaning("which norm", 1)] = 2
    formula = "sqrt(sum(x^2)), or sum(|x|) for p: 1, by row"
    kinks = (0,)
    autocast = "float32"
    keeps_one = False

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        return reduced.norm(chain.graph, x, chain.graph.view - CHANNEL, f"{self.op}_value", self.p)

    def eager(self, x: str) -> str:
        return f"torch.linalg.vector_norm({x}, {self.p}, dim={self.dim}, keepdim={self.keepdim})"


class Normalize(OverChannels):
    """F.normalize over the channels."""

    op: Literal["normalize"]
    p: Annotated[Literal[1, 2], NO_TRUTH, meaning("which norm", 1)] = 2
    eps: Annotated[Scalar, meaning("the least that x is divided by", 1e-6)] = 1e-12
    formula = "x / max(norm(x), eps), by row"
    kinks = (0,)
    autocast = "float32"
    passes = 1

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        graph, eps = chain.graph, chain.scalar(self.eps, "eps")
        norm = reduced.norm(graph, x, graph.view - CHANNEL, "norm", self.p)
        return graph.add("div", x, graph.add("clamp_min", norm, eps, name="divisor"), name="normalize_value")

    def eager(self, x: str) -> str:
        return f"F.normalize({x}, {self.p}, {self.dim}, {scalar_text(self.eps)})"

    def converted(self) -> list[float | str]:
        return [self.eps]


STEPS = (
    *(Softmax, Softmin, LogSoftmax, Normalize),
    *(Sum, Mean, Max, Min, Amax, Amin, Logsumexp, Var, Std, VectorNorm),
)
