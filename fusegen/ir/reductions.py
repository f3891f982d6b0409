"""What is known of a reduction: its C++ type and its gradient. A reduction gives one value for each element of its
axes, of all elements of its operand that this element stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusegen.ir.axes import CHANNEL, SCALAR
from fusegen.ir.functions.gradients import multiply
from fusegen.ir.graph import Graph, Node

Gradient = Callable[[Graph, Node, Node], Node]
"""A rule that gets the graph, the reduction and the gradient of its result, and returns that of its operand, which may
lack axes that the operand has."""


@dataclass(frozen=True)
class Reduction:
    """One entry. cpp: its type in templates/support/reductions.cuh. components: the values that it is made of. value:
    C++: what picks the result of what all elements add up to. within: a reduction whose record has that value, too.

    gradient: None for what only gradients have. Of moments it is that of the variance. The mean has none: the rule of a
    norm goes through both, and the mean alone is a sum.
    of_stored: the backward pass takes it, of an operand that the forward pass has stored: see `stored_operand`.
    """

    name: str
    cpp: str
    components: int = 1
    value: str = ""
    within: str = ""
    gradient: Gradient | None = None
    of_stored: bool = False


def _sum(graph: Graph, node: Node, g: Node) -> Node:
    return g


def _to_first(graph: Graph, node: Node, g: Node) -> Node:
    """All of the gradient goes to the first of the largest, by its number, which the forward pass saves. To look for it
    by its value would be wrong: elements that are computed anew need not be equal to the last bit."""
    (x,) = node.operands
    chosen = graph.add("argmax", x, axes=node.axes, name=f"{node.name}_channel")
    return graph.add("at_channel", g, channel_numbers(graph), chosen, name=f"d_{x.name}")


def _to_ties(graph: Graph, node: Node, g: Node) -> Node:
    """The elements that are the largest share the gradient. What is compared, here and in the reductions, is read from
    memory: elements that each kernel computes anew need not be equal to the last bit."""
    (x,) = node.operands
    peak = graph.add("peak", x, axes=node.axes, name=f"{node.name}_peak")
    ties = graph.add("ties", x, axes=node.axes, name=f"{node.name}_ties")
    # Of a row, so that nothing is divided for each element. Those that are not the largest get zero; all NaN, where the
    # largest is.
    share = graph.add("div", g, ties, name=f"{node.name}_share")
    nothing = graph.add("mul", share, graph.literal(0), name=f"{node.name}_nothing")
    return graph.add("at_ties", x, peak, share, nothing, name=f"d_{x.name}")


def _to_distances(graph: Graph, node: Node, g: Node) -> Node:
    """2 (x - mean) g / n, of the variance m2 / n."""
    (x,) = node.operands
    mean = graph.add("mean", node, name=f"{node.name.removesuffix('_moments')}_mean")
    n = graph.add("count", axes=SCALAR, attribute=node.axes, name="count")
    share = graph.add("div", graph.literal(2), n, name="twice_inverse_count")
    factor = graph.add("mul", g, share, name=f"{g.name}_shared")
    distance = graph.add("sub", x, mean, name=f"{x.name}_centred", temporary=True)
    return multiply(graph, distance, factor, f"d_{x.name}")


def stored_operand(node: Node) -> Node | None:
    """What must lie in memory for a reduction `of_stored`; None for any other node. A negation is exact anywhere."""
    if not node.is_reduction or not REDUCTIONS[node.op].of_stored:
        return None
    (x,) = node.operands
    while x.op == "negate":
        (x,) = x.operands
    return x


def channel_numbers(graph: Graph) -> Node:
    """0, 1, 2 ...: the number of each channel."""
    return graph.add("channel", axes=CHANNEL, name="channel")


REDUCTIONS = {
    reduction.name: reduction
    for reduction in (
        Reduction("sum", "Sum", gradient=_sum),
        Reduction("moments", "MeanAndSquares", components=2, gradient=_to_distances),
        Reduction("max", "Largest", value=".value", within="argmax", gradient=_to_first),
        Reduction("argmax", "FirstLargest", components=2, value=".channel"),
        Reduction("amax", "Largest", value=".value", gradient=_to_ties),
        Reduction("peak", "Largest", value=".value", within="ties", of_stored=True),
        Reduction("ties", "LargestTies", components=2, value=".count", of_stored=True),
    )
}
