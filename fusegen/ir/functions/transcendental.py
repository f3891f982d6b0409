"""Trigonometric and hyperbolic functions, their inverses, and the error function."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.ir.functions.function import Function, Gradient
from fusegen.ir.functions.gradients import multiply, negative, through_input, through_output
from fusegen.ir.graph import Graph, Node


def _by(slope: str, falls: bool = False) -> Gradient:
    """g times another function of x. falls: minus that."""

    def gradient(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
        (x,) = node.operands
        d_x = multiply(graph, g, graph.add(slope, x, name=f"slope_of_{node.name}"), f"d_{x.name}")
        return (negative(graph, d_x) if falls else d_x,)

    return gradient


def _minus(op: str) -> Gradient:
    """Minus the gradient of another function."""

    def gradient(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
        (x,) = node.operands
        return (negative(graph, graph.add(f"{op}_backward", g, x, name=f"d_{x.name}")),)

    return gradient


FUNCTIONS = (
    Function("sin", _by("cos"), costly=True),
    Function("cos", _by("sin", falls=True), costly=True),
    Function("tan", through_output, costly=True),
    Function("tan_backward", operations=2),
    Function("sinh", _by("cosh"), costly=True),
    Function("cosh", _by("sinh"), costly=True),
    # Of inverse functions the derivative is algebraic.
    Function("asin", through_input, costly=True),
    Function("asin_backward", operations=4),
    Function("acos", _minus("asin"), costly=True),
    Function("atan", through_input, costly=True),
    Function("atan_backward", operations=2),
    Function("asinh", through_input, costly=True),
    Function("asinh_backward", operations=4),
    Function("acosh", through_input, costly=True),
    Function("acosh_backward", operations=6),
    Function("atanh", through_input, costly=True),
    Function("atanh_backward", operations=4),
    Function("erf", through_input, costly=True),
    Function("erf_backward", by_result=True, costly=True),
    Function("erfc", _minus("erf"), costly=True),
)
