"""Reductions over the channels of a row, and what is made of them; over positions but the last PyTorch calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from fusegen.chain.builder import ChainBuilder
from fusegen.chain.shape import Shape, Sizes
from fusegen.ir.axes import CHANNEL, SAMPLE, Axes
from fusegen.ir.functions import reduced, softmax
from fusegen.ir.graph import Graph, Node
from fusegen.ops.scalars import Scalar, scalar_text
from fusegen.ops.step import Step
from fusegen.spec.base import NO_TRUTH, Listing, meaning

_Dim = Annotated[Literal[-1, 1, 2, 3, 4], NO_TRUTH]
_OneDim = Annotated[_Dim, meaning("1 or -1: the channels; 2, 3 or 4: a dimension of the positions of images", 1)]
_Dims = Annotated[Listing[Annotated[Literal[1, 2, 3, 4], NO_TRUTH]], Field(min_length=1, max_length=4)]


class OverChannels(Step):
    """An op over the channels of each row, or over positions of images.

    make: adds what the op makes of a node to a graph, for each element of some axes, under a name. pytorch: the op
    in PyTorch, of {x} over the dimension {dim}.
    """

    op: str
    if TYPE_CHECKING:
        dim: int | tuple[int, ...]  # a field of each subclass

    make: ClassVar[reduced.Reduce]
    pytorch: ClassVar[str]
    needs_elements = True
    matrix_only = "with dim: 1"

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions that it is over."""
        return self.dim if isinstance(self.dim, tuple) else (self.dim,)

    @property
    def is_over_positions(self) -> bool:
        return max(self.dims) > 1

    def is_called(self, spatial: int) -> bool:
        return self.is_over_positions and spatial > 0 and not self.is_of_samples(spatial)

    def is_over_last(self, spatial: int) -> bool:
        return self.is_called(spatial) and self.dims == (spatial + 1,) and not self.keeps_format(spatial)

    def over_rows(self) -> OverChannels:
        return self.model_copy(update={"dim": -1})

    def keeps_format(self, spatial: int) -> bool:
        return not self.is_called(spatial)

    def check_call(self, chain: ChainBuilder) -> None:
        if max(self.dims) > chain.shape.spatial + 1:
            message = f"{self.op} is over dimension {max(self.dims)}, and values have {chain.shape.spatial + 2}"
            chain.refuse("FG303", message, "dim")
        elif len({*self.dims}) < len(self.dims):
            chain.refuse("FG208", f"{self.op} is over a dimension twice", "dim")

    def needs_matrix(self) -> bool:
        return self.dim != -1

    def not_over_positions(self) -> str | None:
        return None if self.dims == (1,) else "dimension -1 is one of positions there, 'dim: 1' the channels"

    def not_over_rows(self) -> str | None:
        if not self.is_over_positions:
            return None
        return f"{self.op} is over positions, which values [rows, channels] lack: 'dim: 1' is the channels"

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        return type(self).make(chain.graph, x, chain.graph.view - CHANNEL, f"{self.op}_value")

    def eager(self, x: str) -> str:
        return self.pytorch.format(x=x, dim=f"dim={self.dim}")


class OverOne(OverChannels):
    """An op over one dimension."""

    dim: _OneDim = -1


class Softmax(OverOne):
    """F.softmax over the channels."""

    op: Literal["softmax"]
    formula = "exp(x) / sum(exp(x)), by row"
    autocast = "float32"
    passes = 2  # the largest, then the sum
    make = staticmethod(softmax.softmax)
    pytorch = "F.softmax({x}, {dim})"


class Softmin(OverOne):
    """F.softmin over the channels."""

    op: Literal["softmin"]
    formula = "exp(-x) / sum(exp(-x)), by row"
    autocast = "float32"
    passes = 2
    make = staticmethod(softmax.softmin)
    pytorch = "F.softmin({x}, {dim})"


class LogSoftmax(OverOne):
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
    dim: Annotated[
        _Dim | _Dims,
        meaning("1 or -1: the channels; 2, 3 or 4: a dimension of the positions of images; or a list", 1, [2, 3]),
    ] = -1

    passes = 1
    # Whether of one channel it is that channel; whether kernels have it of all positions of an image.
    keeps_one: ClassVar[bool] = True
    pools: ClassVar[bool] = False

    def takes_rows(self) -> bool:
        return self.keeps_one

    def is_of_samples(self, spatial: int) -> bool:
        return self.pools and spatial > 0 and sorted(self.dims) == [*range(2, spatial + 2)]

    def not_over_positions(self) -> str | None:
        return None if self.pools and self.is_over_positions else super().not_over_positions()

    def build(self, chain: ChainBuilder, x: Node) -> Node:
        if self.is_over_positions:
            chain.keeps_positions = self.keepdim
            return self.reduce_to(chain.graph, x, SAMPLE, f"{self.op}_value")
        if self.keeps_one and not x.is_full:
            return x
        return self.reduce_to(chain.graph, x, chain.graph.view - CHANNEL, f"{self.op}_value")

    def reduce_to(self, graph: Graph, x: Node, over: Axes, name: str) -> Node:
        """What there is of x for each element of `over`."""
        return type(self).make(graph, x, over, name)

    @property
    def reduces_channels(self) -> bool:
        return min(self.dims) < 2

    @property
    def drops_channels(self) -> bool:
        return self.reduces_channels and not self.keepdim

    def shape_behind(self, shape: Shape, sizes: Sizes) -> Shape | None:
        if not (self.is_over_positions and shape.spatial):
            return shape
        return shape.without(self.dims, sizes if self.keepdim else None)

    def spatial_behind(self, spatial: int) -> int:
        if not self.is_over_positions or self.keepdim:
            return spatial
        return max(spatial - sum(dim > 1 for dim in self.dims), 0)

    def eager(self, x: str) -> str:
        return self.pytorch.format(x=x, dim=f"dim={self.dim}", keepdim=f"keepdim={self.keepdim}")


class Sum(ToRows):
    """The sum over the channels."""

    op: Literal["sum"]
    formula = "sum(x), by row"
    autocast = "float32"
    pools = True
    make = staticmethod(reduced.total)
    pytorch = "{x}.sum({dim}, {keepdim})"


class Mean(ToRows):
    """The mean over the channels."""

    op: Literal["mean"]
    formula = "sum(x) / channels, by row"
    pools = True
    make = staticmethod(reduced.mean)
    pytorch = "{x}.mean({dim}, {keepdim})"


class _OfOneDimension(ToRows):
    """A reduction that PyTorch has over one dimension alone, as it returns the index, too."""

    dim: _OneDim = -1


class Max(_OfOneDimension):
    """The largest over the channels, torch.max(x, dim).values. The gradient goes to the first of the largest."""

    op: Literal["max"]
    formula = "max(x), by row"
    make = staticmethod(reduced.largest)
    pytorch = "{x}.max({dim}, {keepdim}).values"


class Min(_OfOneDimension):
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
    pools = True

    def reduce_to(self, graph: Graph, x: Node, over: Axes, name: str) -> Node:
        return type(self).measure(graph, x, over, name, self.correction)

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
    pools = True

    def reduce_to(self, graph: Graph, x: Node, over: Axes, name: str) -> Node:
        return reduced.norm(graph, x, over, name, self.p)

    def eager(self, x: str) -> str:
        return f"torch.linalg.vector_norm({x}, {self.p}, dim={self.dim}, keepdim={self.keepdim})"


class Normalize(OverOne):
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

    def keeps_format(self, spatial: int) -> bool:
        return spatial > 1 or not self.is_called(spatial)

    def check_call(self, chain: ChainBuilder) -> None:
        super().check_call(chain)
        chain.scalar(self.eps, "eps")

    def converted(self) -> list[float | str]:
        return [self.eps]


STEPS = (
    *(Softmax, Softmin, LogSoftmax, Normalize),
    *(Sum, Mean, Max, Min, Amax, Amin, Logsumexp, Var, Std, VectorNorm),
)
