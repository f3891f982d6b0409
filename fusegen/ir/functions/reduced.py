"""Values that elements are reduced to, as graph nodes: each of x, one for each element of some axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fusegen.ir.axes import Axes
from fusegen.ir.functions.function import Function
from fusegen.ir.functions.gradients import through_output
from fusegen.ir.functions.normalisation import count
from fusegen.ir.graph import Graph, Node


# No Callable: as an attribute of a class, that would be a method to a type checker.
class Reduce(Protocol):
    def __call__(self, graph: Graph, x: Node, over: Axes, name: str, /) -> Node: ...


class Measure(Protocol):
    def __call__(self, graph: Graph, x: Node, over: Axes, name: str, correction: int, /) -> Node: ...


def total(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    return graph.add("sum", x, axes=over, name=name)


def mean(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    return graph.add("div", total(graph, x, over, f"{name}_sum"), count(graph, over), name=name)


def variance(graph: Graph, x: Node, over: Axes, name: str, correction: int) -> Node:
    """The squares of the distances to the mean, over the number of elements less the correction: NaN for 0 / 0."""
    moments = graph.add("moments", x, axes=over, name=f"{name}_moments")
    biased = graph.add("variance", moments, name=f"{name}_biased" if correction else name)
    if not correction:
        return biased
    n = count(graph, over)
    fewer = graph.add("sub", n, graph.literal(correction), name="count_less_correction", temporary=True)
    return graph.add("mul", biased, graph.add("div", n, fewer, name=f"{name}_bessel"), name=name)


def deviation(graph: Graph, x: Node, over: Axes, name: str, correction: int) -> Node:
    return graph.add("magnitude", variance(graph, x, over, f"{name}_variance", correction), name=name)


def norm(graph: Graph, x: Node, over: Axes, name: str, p: int) -> Node:
    """The p-norm for p = 1 or 2."""
    if p == 1:
        return total(graph, graph.add("absolute", x, name=f"{name}_size", temporary=True), over, name)
    squares = total(graph, graph.add("square", x, name=f"{name}_square", temporary=True), over, f"{name}_squares")
    return graph.add("magnitude", squares, name=name)


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


def _variance(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """The gradient of moments is that of their variance: `reductions`."""
    return (g,)


def _at_channel(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    x, *others = node.operands
    return graph.add("at_channel", g, *others, name=f"d_{x.name}"), None, None


FUNCTIONS = (
    Function("variance", _variance),
    # A root whose gradient is zero at zero, as PyTorch has it for a deviation and a norm.
    Function("magnitude", through_output, "sqrt"),
    Function("magnitude_backward", operations=2),
    # One element of a row, or its gradient; zero elsewhere. Of it, the number of each channel, and that of the chosen.
    Function("at_channel", _at_channel),
    # The gradient of x, of which some elements equal the largest: of x, the largest, their share, that of the others.
    Function("at_ties", operations=2),
)
