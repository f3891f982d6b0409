"""Gradient rules that several functions share, and what such rules are made of."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.ir.graph import Graph, Node


def negative(graph: Graph, value: Node) -> Node:
    return graph.add("negate", value, name=f"minus_{value.name}", temporary=True)


def multiply(graph: Graph, left: Node, right: Node, name: str) -> Node:
    """The product in one canonical order of operands, so that equal products are one node."""
    first, second = sorted((left, right), key=lambda node: node.index)
    return graph.add("mul", first, second, name=name, temporary=True)


def through_input(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """dx = f_backward(g, x, constants), the shape of most activations."""
    x, *constants = node.operands
    d_x = graph.add(f"{node.op}_backward", g, x, *constants, name=f"d_{x.name}")
    return (d_x, *(None for _ in constants))


def through_output(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """dx = f_backward(g, f(x)): the output gives the derivative without evaluating f once more."""
    (x,) = node.operands
    return (graph.add(f"{node.op}_backward", g, node, name=f"d_{x.name}"),)


def through_both(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """dx = g f_slope(x, s) for a function of x and of s, a function of x that the gradient needs as well: the whole
    gradient goes to x."""
    x, shared = node.operands
    slope = graph.add(f"{node.op}_slope", x, shared, name=f"slope_of_{node.name}")
    return graph.add(f"{node.op}_backward", g, slope, name=f"d_{x.name}"), None
