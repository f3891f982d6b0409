"""Powers, roots, exponentials, logarithms and absolute values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusegen.ir.functions.function import Function, Gradient
from fusegen.ir.functions.gradients import multiply, through_input, through_output
from fusegen.ir.graph import Graph, Node


def _square(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    (x,) = node.operands
    return (multiply(graph, g, multiply(graph, graph.literal(2), x, f"twice_{x.name}"), f"d_{x.name}"),)


def _sqrt(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """g / (2 sqrt(x)): infinite at 0, where g is not."""
    (x,) = node.operands
    twice = multiply(graph, graph.literal(2), node, f"twice_{node.name}")
    return (graph.add("div", g, twice, name=f"d_{x.name}"),)


def _log(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    (x,) = node.operands
    return (graph.add("div", g, x, name=f"d_{x.name}"),)


def _exp(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    return (multiply(graph, g, node, _d(node)),)


def _log1p(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    (x,) = node.operands
    shifted = graph.add("add", x, graph.literal(1), name=f"{x.name}_and_one", temporary=True)
    return (graph.add("div", g, shifted, name=f"d_{x.name}"),)


def _log_to(base: float) -> Gradient:
    """g / (x log(base)). The factor goes to g, where it leaves the digits of a small x."""

    def gradient(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
        scaled = multiply(graph, g, graph.literal(1 / math.log(base)), f"{g.name}_scaled")
        return _log(graph, node, scaled)

    return gradient


def _exp2(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    return (multiply(graph, multiply(graph, g, node, f"{g.name}_power"), graph.literal(math.log(2)), _d(node)),)


def _expm1(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """By exp(x): the sum of the function and 1 has lost its digits where x is far below 0."""
    (x,) = node.operands
    return (multiply(graph, g, graph.add("exp", x, name=f"slope_of_{node.name}"), _d(node)),)


def _d(node: Node) -> str:
    """What the gradient of a function's operand is called."""
    return f"d_{node.operands[0].name}"


FUNCTIONS = (
    Function("square", _square),
    Function("sqrt", _sqrt),
    Function("rsqrt", through_output),
    Function("rsqrt_backward"),
    Function("reciprocal", through_output),
    Function("reciprocal_backward"),
    Function("log", _log, costly=True),
    Function("exp", _exp, "exponential", by_result=True, costly=True),
    Function("log2", _log_to(2), costly=True),
    Function("log10", _log_to(10), costly=True),
    Function("log1p", _log1p, costly=True),
    Function("exp2", _exp2, costly=True),
    Function("expm1", _expm1, costly=True),
    Function("real_power", through_input, costly=True),
    Function("real_power_backward", costly=True),
    Function("absolute", through_input, "fabs"),
    Function("absolute_backward"),
)
