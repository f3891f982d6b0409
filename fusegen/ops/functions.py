"""Element-wise functions of the graph: their C++ spelling and their gradient.

A gradient rule gets the graph, the node and the gradient of its result, and returns one contribution for each
operand, at the
extent of the result (the caller sums it to the operand's extent); None where an operand takes no gradient.
Formulas and the
values at kinks are those of PyTorch's derivatives.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fusegen.ir.graph import Graph, Node

Gradient = Callable[[Graph, Node, Node], Sequence[Node | None]]


@dataclass(frozen=True)
class Function:
    """cpp: an infix operator, or a function in templates/support/math.cuh, with its template arguments."""

    name: str
    cpp: str
    gradient: Gradient | None = None

    @property
    def is_infix(self) -> bool:
        return self.cpp in {"+", "-", "*", "/"}


FUNCTIONS: dict[str, Function] = {}


def define(name: str, cpp: str | None = None, gradient: Gradient | None = None) -> None:
    FUNCTIONS[name] = Function(name, cpp or name, gradient)


def negative(graph: Graph, value: Node) -> Node:
    return graph.add("negate", value, name=f"minus_{value.name}", temporary=True)


def multiply(graph: Graph, left: Node, right: Node, name: str) -> Node:
    """The product in one canonical order of operands, so that equal products are one node."""
    first, second = sorted((left, right), key=lambda node: node.index)
    return graph.add("mul", first, second, name=name, temporary=True)


def _add(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    return g, g


def _sub(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    return g, negative(graph, g)


def _mul(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    left, right = node.operands
    return (
        multiply(graph, g, right, f"d_{left.name}"),
        multiply(graph, g, left, f"d_{right.name}"),
    )


def _div(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    left, right = node.operands
    d_left = graph.add("div", g, right, name=f"d_{left.name}", temporary=True)
    return d_left, negative(graph, multiply(graph, d_left, node, f"d_{right.name}"))


def _split_at_ties(name: str) -> Gradient:
    def rule(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
        left, right = node.operands
        return (
            graph.add(f"{name}_backward", g, left, right, name=f"d_{left.name}", temporary=True),
            graph.add(f"{name}_backward", g, right, left, name=f"d_{right.name}", temporary=True),
        )

    return rule


def _through_input(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """dx = f_backward(g, x, constants), the shape of most activations."""
    x, *constants = node.operands
    d_x = graph.add(f"{node.op}_backward", g, x, *constants, name=f"d_{x.name}")
    return (d_x, *(None for _ in constants))


def _through_output(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """dx = f_backward(g, f(x)): the output gives the derivative without evaluating f once more."""
    (x,) = node.operands
    return (graph.add(f"{node.op}_backward", g, node, name=f"d_{x.name}"),)


def _through_both(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """dx = g f_slope(x, s) for a function of x and of s, a function of x that the gradient needs as well: the whole
    gradient goes to x."""
    x, shared = node.operands
    slope = graph.add(f"{node.op}_slope", x, shared, name=f"slope_of_{node.name}")
    return graph.add(f"{node.op}_backward", g, slope, name=f"d_{x.name}"), None


def _exp(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    return (multiply(graph, g, node, f"d_{node.operands[0].name}"),)


def _square(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    (x,) = node.operands
    return (multiply(graph, g, multiply(graph, graph.literal(2), x, f"twice_{x.name}"), f"d_{x.name}"),)


define("add", "+", _add)
define("sub", "-", _sub)
define("mul", "*", _mul)
define("div", "/", _div)
define("negate", "-")
define("minimum", gradient=_split_at_ties("minimum"))
define("maximum", gradient=_split_at_ties("maximum"))
define("minimum_backward")
define("maximum_backward")
define("rsqrt")
define("reciprocal")
define("vanishing")
define("average_factor")
define("exp", "exponential<Out>", _exp)
define("square", gradient=_square)

ACTIVATIONS_BY_INPUT = (
    *("relu", "leaky_relu", "gelu_tanh", "hardswish", "softplus"),
    *("clamp", "clamp_min", "clamp_max", "hardtanh"),
)
for _name in ACTIVATIONS_BY_INPUT:
    define(_name, gradient=_through_input)
    define(f"{_name}_backward")
for _name in ("sigmoid", "tanh"):
    define(_name, gradient=_through_output)
    define(f"{_name}_backward")

for _name in ("bounded_exp", "normal_cdf"):
    define(_name)
for _name, _cpp in (("silu", "*"), ("gelu", "*"), ("mish", None)):
    define(_name, _cpp, _through_both)
    define(f"{_name}_slope")
    define(f"{_name}_backward", "*")

# How exact an exponential must be, and what is made of it, depends on the type of the results.
for _name in (
    *("sigmoid", "bounded_exp", "mish", "mish_slope", "normal_cdf", "gelu_slope"),
    *("gelu_tanh", "gelu_tanh_backward", "softplus", "softplus_backward"),
):
    FUNCTIONS[_name] = replace(FUNCTIONS[_name], cpp=f"{_name}<Out>")

COSTLY = frozenset(
    "exp sigmoid tanh bounded_exp normal_cdf mish gelu_tanh softplus "
    "gelu_slope gelu_tanh_backward mish_slope softplus_backward".split()
)
"""Functions that take many times as long as an addition."""

SLOPES = frozenset({"silu_slope", "gelu_slope", "mish_slope"})
"""Derivatives that share with the function itself what costs most of it."""
