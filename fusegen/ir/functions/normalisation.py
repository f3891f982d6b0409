"""Normalisation as graph nodes: statistics, then `standardize`, whose gradient covers the statistics' own
dependence on x.

With n reduced elements, mean m, r = 1/sqrt(var + eps) and xhat = (x - m) r, the chain rule through m and r gives
    dx = r (g - (sum(g) + xhat sum(g xhat)) / n)
(Ioffe and Szegedy 2015, section 3, rearranged), and without centring (RMSNorm) the term sum(g) is absent. Statistics
are therefore no operands of their own to autodiff: no gradient flows into them twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusegen.ir.axes import SCALAR, Axes
from fusegen.ir.functions.function import Function
from fusegen.ir.functions.gradients import multiply
from fusegen.ir.graph import Graph, Node, ancestors
from fusegen.ir.reduce import sum_to

BATCH_STATISTICS = "statistics of x"
GIVEN_STATISTICS = "given statistics"
RANK_STATISTICS = "statistics of all ranks"


def inverse_deviation(graph: Graph, variance: Node, eps: Node, name: str) -> Node:
    shifted = graph.add("add", variance, eps, name=f"{name}_shifted", temporary=True)
    return graph.add("rsqrt", shifted, name=name)


def centred(graph: Graph, x: Node, over: Axes, eps: Node, name: str) -> tuple[Node, Node, Node]:
    """(xhat, mean, variance) with the biased variance of x around its mean, one value for each element of `over`."""
    moments = graph.add("moments", x, axes=over, name=f"{name}_moments")
    mean = graph.add("mean", moments, name=f"{name}_mean")
    variance = graph.add("variance", moments, name=f"{name}_variance")
    rstd = inverse_deviation(graph, variance, eps, f"{name}_rstd")
    xhat = graph.add("standardize", x, mean, rstd, name=f"{name}_hat", attribute=BATCH_STATISTICS)
    return xhat, mean, variance


def with_given(graph: Graph, x: Node, mean: Node, variance: Node, eps: Node, name: str) -> Node:
    """xhat by statistics that do not depend on x (BatchNorm in evaluation)."""
    rstd = inverse_deviation(graph, variance, eps, f"{name}_rstd")
    return graph.add("standardize", x, mean, rstd, name=f"{name}_hat", attribute=GIVEN_STATISTICS)


def sync_batch_norm(graph: Graph, x: Node, mean: Node, variance: Node, eps: Node, name: str) -> Node:
    """xhat by statistics of the x of all ranks, of which the graph has one's. Its gradient has the means of g and of
    g xhat over all rows of all ranks as leaves: see `rank_sums`."""
    rstd = inverse_deviation(graph, variance, eps, f"{name}_rstd")
    return graph.add("standardize", x, mean, rstd, name=f"{name}_hat", attribute=RANK_STATISTICS)


@dataclass(frozen=True)
class RankSums:
    """The nodes of a norm's gradient over ranks. sum_g, sum_g_xhat: the sums of g and of g xhat over this rank's rows,
    a value for each channel. mean_g, mean_g_xhat: leaves for the sums over all ranks over the number of all rows."""

    sum_g: Node
    sum_g_xhat: Node
    mean_g: Node
    mean_g_xhat: Node


def rank_sums(graph: Graph, results: Iterable[Node]) -> RankSums:
    """The sums of the one norm over ranks that the gradient `results` depend on; adds sum_g and sum_g_xhat to the
    graph."""
    nodes = (node for node in ancestors(results) if node.op == "standardize_backward")
    (node,) = (node for node in nodes if node.operands[1].attribute == RANK_STATISTICS)
    g, hat, _, mean_g, mean_g_xhat, _ = node.operands
    sum_g, sum_g_xhat = _sums(graph, g, hat, mean_g.axes)
    return RankSums(sum_g, sum_g_xhat, mean_g, mean_g_xhat)


def uncentred(graph: Graph, x: Node, over: Axes, eps: Node, name: str) -> Node:
    """x / sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019, RMSNorm)."""
    square = graph.add("square", x, name=f"{name}_square", temporary=True)
    total = graph.add("sum", square, axes=over, name=f"{name}_sum_of_squares")
    mean_square = graph.add("div", total, count(graph, over), name=f"{name}_mean_square", temporary=True)
    rrms = inverse_deviation(graph, mean_square, eps, f"{name}_rrms")
    return graph.add("rescale", x, rrms, name=f"{name}_hat")


def count(graph: Graph, over: Axes) -> Node:
    """How many elements one value of `over` stands for: a scalar known at launch."""
    return graph.add("count", axes=SCALAR, attribute=over, name="count")


def _inverse_count(graph: Graph, over: Axes) -> Node:
    return graph.add("reciprocal", count(graph, over), name="inverse_count")


def _standardize(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    x, mean, rstd = node.operands
    if node.attribute == GIVEN_STATISTICS:
        return multiply(graph, g, rstd, f"d_{x.name}"), None, None
    over = mean.axes
    if node.attribute == RANK_STATISTICS:
        owner = node.name.removesuffix("_hat")
        names = [graph.claim(f"{owner}_{each}_of_ranks") for each in ("mean_g", "mean_g_xhat")]
        sums, inverse_n = (graph.tensor(names[0], over), graph.tensor(names[1], over)), graph.literal(1)
    else:
        sums, inverse_n = _sums(graph, g, node, over), _inverse_count(graph, over)
    operands = (g, node, rstd, *sums, inverse_n)
    return graph.add("standardize_backward", *operands, name=f"d_{x.name}"), None, None


def _sums(graph: Graph, g: Node, hat: Node, over: Axes) -> tuple[Node, Node]:
    """Of g and of g xhat."""
    return sum_to(graph, g, over), sum_to(graph, multiply(graph, g, hat, f"{g.name}_{hat.name}"), over)


def _rescale(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    x, rrms = node.operands
    sum_g_xhat = sum_to(graph, multiply(graph, g, node, f"{g.name}_{node.name}"), rrms.axes)
    operands = (g, node, rrms, sum_g_xhat, _inverse_count(graph, rrms.axes))
    return graph.add("rescale_backward", *operands, name=f"d_{x.name}"), None


# Rewrites leave none of these, unless a spec switches them off. The difference comes before it is scaled.
_STANDARDIZE = "FUSEGEN_MATH standardize(A x, A mean, A rstd) { return (x - mean) * rstd; }"
_RESCALE = "FUSEGEN_MATH rescale(A x, A rrms) { return x * rrms; }"
_STANDARDIZE_BACKWARD = """
FUSEGEN_MATH standardize_backward(A g, A hat, A rstd, A sum_g, A sum_g_hat, A inverse_n) {
  return rstd * (g - (hat * (sum_g_hat * inverse_n) + sum_g * inverse_n));
}
"""
_RESCALE_BACKWARD = """
FUSEGEN_MATH rescale_backward(A g, A hat, A rrms, A sum_g_hat, A inverse_n) {
  return rrms * (g - hat * (sum_g_hat * inverse_n));
}
"""

FUNCTIONS = (
    Function("standardize", _standardize, operations=2, is_product=True, definition=_STANDARDIZE),
    Function("rescale", _rescale, is_product=True, definition=_RESCALE),
    Function("standardize_backward", operations=3, definition=_STANDARDIZE_BACKWARD),
    Function("rescale_backward", operations=3, definition=_RESCALE_BACKWARD),
)
