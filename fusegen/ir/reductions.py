"""What is known of a reduction: its C++ type and its gradient. A reduction gives one value for each element of its
axes, of all elements of its operand that this element stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fusegen.ir.graph import Graph, Node

Gradient = Callable[[Graph, Node, Node], Node]
"""A rule that gets the graph, the reduction and the gradient of its result, and returns that of its operand, which may
lack axes that the operand has."""


@dataclass(frozen=True)
class Reduction:
    """One entry. cpp: its type in templates/support/reductions.cuh. components: the values that it is made of. value:
    C++: what picks the result of what all elements add up to.

    gradient: None for the moments of a norm, through which the norm's own rule goes, and for the largest element, which
    softmax shifts by without an effect. (That of amax would go to the elements that equal the largest: elements that
    are computed anew in the backward pass need not be equal to the last bit.)
    """

    name: str
    cpp: str
    components: int = 1
    value: str = ""
    gradient: Gradient | None = None


def _sum(graph: Graph, node: Node, g: Node) -> Node:
    return g


REDUCTIONS = {
    reduction.name: reduction
    for reduction in (
        Reduction("sum", "Sum", gradient=_sum),
        Reduction("moments", "MeanAndSquares", components=2),
        Reduction("max", "Largest", value=".value"),
    )
}
