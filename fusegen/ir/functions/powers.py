"""Powers, roots, logarithms and absolute values."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.ir.functions.function import Function
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
    return (multiply(graph, g, node, f"d_{node.operands[0].name}"),)


FUNCTIONS = (
    Function("square", _square),
    Function("sqrt", _sqrt),
    Function("rsqrt", through_output),
    Function("rsqrt_backward"),
    Function("reciprocal", through_output),
    Function("reciprocal_backward"),
    Function("log", _log, costly=True),
    Function("exp", _exp, "exponential", by_result=True, costly=True),
    Function("real_power", through_input, costly=True),
    Function("real_power_backward", costly=True),
    Function("absolute", through_input, "fabs"),
    Function("absolute_backward"),
)
