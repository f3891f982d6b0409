"""Values that elements are reduced to, as graph nodes: each of x, one for each element of some axes."""

from __future__ import annotations

from collections.abc import Callable

from fusegen.ir.axes import Axes
from fusegen.ir.functions.function import Function
from fusegen.ir.functions.normalisation import count
from fusegen.ir.graph import Graph, Node

Reduce = Callable[[Graph, Node, Axes, str], Node]


def total(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    return graph.add("sum", x, axes=over, name=name)


def mean(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    return graph.add("div", total(graph, x, over, f"{name}_sum"), count(graph, over), name=name)


def largest(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    """NaN if an element is. The gradient goes to the first of the largest."""
    return graph.add("max", x, axes=over, name=name)


def smallest(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    return _by_minus(largest, graph, x, over, name)


def tied_largest(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    """NaN if an element is. All of the largest share the gradient."""
    return graph.add("amax", x, axes=over, name=name)


def tied_smallest(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    return _by_minus(tied_largest, graph, x, over, name)


def _by_minus(reduce: Reduce, graph: Graph, x: Node, over: Axes, name: str) -> Node:
    """The smallest of x is minus the largest of -x, exactly."""
    minus = graph.add("negate", x, name=f"minus_{x.name}", temporary=True)
    return graph.add("negate", reduce(graph, minus, over, f"{name}_of_minus"), name=name)


FUNCTIONS = (
    # The gradient of the element that a reduction has chosen: of g, the number of each channel, and that of the chosen.
    Function("at_channel"),
    # That of those which equal the largest: of g, x, the largest, and how many there are of it.
    Function("at_ties", operations=3),
)
