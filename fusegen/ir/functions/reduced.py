"""Values that elements are reduced to, as graph nodes: each of x, one for each element of an extent."""

from __future__ import annotations

from fusegen.ir.extent import Extent
from fusegen.ir.functions.function import Function
from fusegen.ir.functions.normalisation import count
from fusegen.ir.graph import Graph, Node


def total(graph: Graph, x: Node, over: Extent, name: str) -> Node:
    return graph.add("sum", x, extent=over, name=name)


def mean(graph: Graph, x: Node, over: Extent, name: str) -> Node:
    return graph.add("div", total(graph, x, over, f"{name}_sum"), count(graph, over), name=name)


def largest(graph: Graph, x: Node, over: Extent, name: str) -> Node:
    """NaN if an element is. The gradient goes to the first of the largest."""
    return graph.add("max", x, extent=over, name=name)


def smallest(graph: Graph, x: Node, over: Extent, name: str) -> Node:
    """-max(-x), which is exact."""
    minus = graph.add("negate", x, name=f"minus_{x.name}", temporary=True)
    return graph.add("negate", largest(graph, minus, over, f"{name}_of_minus"), name=name)


FUNCTIONS = (
    # The gradient of the element that a reduction has chosen: of g, the number of each channel, and that of the chosen.
    Function("at_channel"),
)
