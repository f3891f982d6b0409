"""Reductions over the channels of a row, and what is made of them."""

from __future__ import annotations

from typing import Annotated, Literal

from fusegen.ir.axes import CHANNEL
from fusegen.ir.functions import normalisation, softmax
from fusegen.ir.graph import Node
from fusegen.ops.step import Step
from fusegen.spec.base import meaning


class OverChannels(Step):
    """An op over the channels of each row."""

    op: str
    dim: Annotated[Literal[-1, 1], meaning("the dimension of [rows, channels]: the channels", 1)] = -1

    needs_elements = True
    matrix_only = "with dim: 1"

    def needs_matrix(self) -> bool:
        return self.dim != -1


class Softmax(OverChannels):
    """F.softmax over the channels."""

    op: Literal["softmax"]
    formula = "exp(x) / sum(exp(x)), by row"
    autocast = "float32"

    def build(self, chain, x: Node) -> Node:
        return softmax.softmax(chain.graph, x, chain.graph.view - CHANNEL, "softmax_value")

    def eager(self, x: str) -> str:
        return f"F.softmax({x}, dim={self.dim})"


class LogSoftmax(OverChannels):
    """F.log_softmax over the channels."""

    op: Literal["log_softmax"]
    formula = "x - log(sum(exp(x))), by row"
    autocast = "float32"

    def build(self, chain, x: Node) -> Node:
        return softmax.log_softmax(chain.graph, x, chain.graph.view - CHANNEL, "log_softmax_value")

    def eager(self, x: str) -> str:
        return f"F.log_softmax({x}, dim={self.dim})"


class ToRows(OverChannels):
    """A reduction to one value for each row. Later steps combine it with values of full size."""

    keepdim: Annotated[Literal[True], meaning("the result is [rows, 1]", True)]


class Sum(ToRows):
    """The sum over the channels."""

    op: Literal["sum"]
    formula = "sum(x), by row"
    autocast = "float32"

    def build(self, chain, x: Node) -> Node:
        return chain.graph.add("sum", x, axes=chain.graph.view - CHANNEL, name="sum_value")

    def eager(self, x: str) -> str:
        return f"{x}.sum(dim={self.dim}, keepdim=True)"


class Mean(ToRows):
    """The mean over the channels."""

    op: Literal["mean"]
    formula = "sum(x) / channels, by row"

    def build(self, chain, x: Node) -> Node:
        total = chain.graph.add("sum", x, axes=chain.graph.view - CHANNEL, name="mean_sum")
        return chain.graph.add("div", total, normalisation.count(chain.graph, total.axes), name="mean_value")

    def eager(self, x: str) -> str:
        return f"{x}.mean(dim={self.dim}, keepdim=True)"


class Logsumexp(ToRows):
    """torch.logsumexp over the channels."""

    op: Literal["logsumexp"]
    formula = "log(sum(exp(x))), by row"
    autocast = "float32"

    def build(self, chain, x: Node) -> Node:
        return softmax.logsumexp(chain.graph, x, chain.graph.view - CHANNEL, "logsumexp_value")

    def eager(self, x: str) -> str:
        return f"torch.logsumexp({x}, dim={self.dim}, keepdim=True)"


STEPS = (Softmax, LogSoftmax, Sum, Mean, Logsumexp)
