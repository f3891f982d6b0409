"""Arithmetic of two values, and what autodiff and norms need besides."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.ir.functions.function import Function
from fusegen.ir.functions.gradients import multiply, negative
from fusegen.ir.graph import Graph, Node


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


def _negate(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    return (negative(graph, g),)


def _detach(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    return (None,)


def _cast(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    return (g,)


def _by_each(graph: Graph, node: Node, g: Node) -> tuple[Node, Node]:
    """f_backward(g, x, y) for x, and with the operands exchanged for y."""
    left, right = node.operands
    return (
        graph.add(f"{node.op}_backward", g, left, right, name=f"d_{left.name}", temporary=True),
        graph.add(f"{node.op}_backward", g, right, left, name=f"d_{right.name}", temporary=True),
    )


def _hypot(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """g x / hypot(x, y) for each: NaN where both are zero."""
    parts = []
    for operand in node.operands:
        share = graph.add("div", operand, node, name=f"{operand.name}_share", temporary=True)
        parts.append(multiply(graph, g, share, f"d_{operand.name}"))
    return parts


def _atan2(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    d_y, d_x = _by_each(graph, node, g)
    return d_y, negative(graph, d_x)


def _masked_fill(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    x, mask, _ = node.operands
    return graph.add("masked_fill_backward", g, mask, name=f"d_{x.name}", temporary=True), None, None


FUNCTIONS = (
    Function("add", _add, "{} + {}"),
    Function("sub", _sub, "{} - {}"),
    Function("mul", _mul, "{} * {}", is_product=True),
    Function("div", _div, "{} / {}"),
    # A sign is part of the instruction that takes the value.
    Function("negate", _negate, "-{}", operations=0),
    Function("detach", _detach, "{}", operations=0),
    # The dtype is that of the tensor it is stored in.
    Function("cast", _cast, "{}", operations=0),
    # A value that its operand has for all of a row, or all rows: autodiff makes such of gradients.
    Function("expand", cpp="{}", operations=0),
    # Half of the gradient goes to each of two equal operands.
    Function("minimum", _by_each),
    Function("maximum", _by_each),
    Function("minimum_backward"),
    Function("maximum_backward"),
    Function("logaddexp", _by_each, by_result=True, costly=True),
    Function("logaddexp_backward", by_result=True, costly=True),
    Function("hypot", _hypot, costly=True),
    Function("atan2", _atan2, costly=True),
    Function("atan2_backward", costly=True),
    # Where a mask of bool is not zero.
    Function("masked_fill", _masked_fill),
    Function("masked_fill_backward"),
    # Zero, but NaN where the value is NaN or infinite.
    Function("vanishing", cpp="{} * Acc(0)"),
    # The share of the newest batch in a batch norm's running statistics.
    Function("average_factor"),
)
