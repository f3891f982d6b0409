"""Element-wise functions of the graph. The entry of each says all that is known of it: the C++ spelling, the gradient,
what it costs, and how much of it a kernel should keep.

A gradient rule gets the graph, the node and the gradient of its result, and returns one contribution for each
operand, at the extent of the result (the caller sums it to the operand's extent); None where an operand takes no
gradient. Formulas, and the values at kinks, are those of PyTorch's derivatives.yaml and of the CUDA kernels it names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusegen.ir.graph import Graph, Node

Gradient = Callable[[Graph, Node, Node], Sequence[Node | None]]


@dataclass(frozen=True)
class Function:
    """cpp: an infix operator, or a function of C++ or of templates/support/math.cuh.

    by_result: as exact as results of type `Out` can show, which is then its first template argument. costly: takes
    many times as long as an addition, so kernels keep the value for later sweeps. slope: a derivative that shares with
    the function itself what costs most of it; row kernels keep it in place of that.
    """

    name: str
    cpp: str
    gradient: Gradient | None = None
    by_result: bool = False
    costly: bool = False
    slope: bool = False

    @property
    def is_infix(self) -> bool:
        return self.cpp in {"+", "-", "*", "/"}

    @property
    def call(self) -> str:
        """What stands before the brackets of the arguments."""
        return f"{self.cpp}<Out>" if self.by_result else self.cpp


FUNCTIONS: dict[str, Function] = {}


def define(name: str, cpp: str | None = None, gradient: Gradient | None = None, **known: bool) -> None:
    """known: by_result, costly, slope."""
    FUNCTIONS[name] = Function(name, cpp or name, gradient, **known)


def is_costly(node: Node) -> bool:
    function = FUNCTIONS.get(node.op)
    return function is not None and function.costly


def is_slope(node: Node) -> bool:
    function = FUNCTIONS.get(node.op)
    return function is not None and function.slope


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


def _negate(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    return (negative(graph, g),)


def _sqrt(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """g / (2 sqrt(x)): infinite at 0, where g is not."""
    (x,) = node.operands
    twice = multiply(graph, graph.literal(2), node, f"twice_{node.name}")
    return (graph.add("div", g, twice, name=f"d_{x.name}"),)


def _log(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    (x,) = node.operands
    return (graph.add("div", g, x, name=f"d_{x.name}"),)


def _prelu(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    x, weight = node.operands
    return (
        graph.add("leaky_relu_backward", g, x, weight, name=f"d_{x.name}"),
        graph.add("prelu_weight_backward", g, x, name=f"d_{weight.name}", temporary=True),
    )


# Arithmetic

define("add", "+", _add)
define("sub", "-", _sub)
define("mul", "*", _mul)
define("div", "/", _div)
define("negate", "-", _negate)
for _name in ("minimum", "maximum"):
    define(_name, gradient=_split_at_ties(_name))
    define(f"{_name}_backward")
define("vanishing")
define("average_factor")

# Powers and logarithms

define("square", gradient=_square)
define("sqrt", gradient=_sqrt)
define("log", gradient=_log, costly=True)
define("exp", "exponential", _exp, by_result=True, costly=True)
for _name in ("rsqrt", "reciprocal"):
    define(_name, gradient=_through_output)
    define(f"{_name}_backward")
define("real_power", gradient=_through_input, costly=True)
define("real_power_backward", costly=True)

# Activations of comparisons and arithmetic

for _name in (
    *("relu", "leaky_relu", "hardswish", "hardsigmoid", "softsign"),
    *("clamp", "clamp_min", "clamp_max", "hardtanh"),
):
    define(_name, gradient=_through_input)
    define(f"{_name}_backward")
define("absolute", "fabs", _through_input)
define("absolute_backward")
define("prelu", "leaky_relu", _prelu)
define("prelu_weight_backward")

# Activations of exponentials

for _name in ("gelu_tanh", "softplus", "logsigmoid"):
    define(_name, gradient=_through_input, by_result=True, costly=True)
    define(f"{_name}_backward", by_result=True, costly=True)
define("elu", gradient=_through_input, costly=True)
define("elu_backward", by_result=True, costly=True)
define("sigmoid", gradient=_through_output, by_result=True, costly=True)
define("tanh", gradient=_through_output, costly=True)
for _name in ("sigmoid", "tanh"):
    define(f"{_name}_backward")

# What an activation and its gradient share is a value of its own.
for _name in ("bounded_exp", "normal_cdf"):
    define(_name, by_result=True, costly=True)
for _name in ("silu", "gelu", "mish"):
    define(f"{_name}_backward", "*")
define("silu", "*", _through_both)
define("silu_slope", slope=True)
define("gelu", "*", _through_both)
define("gelu_slope", by_result=True, costly=True, slope=True)
define("mish", gradient=_through_both, by_result=True, costly=True)
define("mish_slope", by_result=True, costly=True, slope=True)
