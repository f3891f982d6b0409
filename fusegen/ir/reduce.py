"""Sums, in the form that needs the fewest passes: constant factors move out, sums known to vanish are not computed."""

from __future__ import annotations

from fusegen.ir.axes import CHANNEL, ROW, SCALAR, Axes
from fusegen.ir.graph import Graph, Node
from fusegen.ir.ranges import is_moderate
from fusegen.ir.reductions import channel_numbers


def sum_to(graph: Graph, value: Node, axes: Axes) -> Node:
    """`value` summed over every axis that `axes` lacks; as it is where it has none of these.

    Factors that do not vary over the summed axes are multiplied afterwards, so that e.g. the sums of g, of g *
    weight and of g / divisor over the rows are one sum. The whole of a matrix is summed by columns first, for the same
    reason. A constant that is far from 1 stays where it is: see `ranges`.
    """
    if value.axes <= axes:
        return value
    if value.axes == ROW and axes == SCALAR:
        # What sums to scalars takes values of channels. A row's value goes to its first channel, which is exact.
        value = graph.add("at_channel", value, channel_numbers(graph), graph.literal(0), name=f"{value.name}_of_row")
    if value.is_full and axes == SCALAR:
        return sum_to(graph, sum_to(graph, value, CHANNEL), SCALAR)
    factors = _factors(graph, value)
    outer = [factor for factor in factors if factor.axes <= axes]
    inner = [factor for factor in factors if factor not in outer]
    if not outer and len(inner) > 1:
        return graph.add("sum", value, axes=axes, name=f"{value.name}_sum")
    result = _sum_of_product(graph, inner, axes)
    for factor in outer:
        result = graph.add("mul", result, factor, name=f"{result.name}_scaled", temporary=True)
    return result


def _factors(graph: Graph, value: Node) -> list[Node]:
    if value.op == "mul" and is_moderate(value.operands):
        return [factor for operand in value.operands for factor in _factors(graph, operand)]
    if value.op == "negate":
        return [graph.literal(-1), *_factors(graph, value.operands[0])]
    return [value]


def _sum_of_product(graph: Graph, factors: list[Node], axes: Axes) -> Node:
    if len(factors) == 1 and (vanishing := _vanishing_sum(graph, factors[0], axes)):
        return vanishing
    product, *others = sorted(factors, key=lambda node: node.index)
    for factor in others:
        product = graph.add("mul", product, factor, name=f"{product.name}_{factor.name}", temporary=True)
    return graph.add("sum", product, axes=axes, name=f"{product.name}_sum")


def _vanishing_sum(graph: Graph, value: Node, axes: Axes) -> Node | None:
    """The gradient through a centred normalisation sums to zero over what was normalised.

    x reaches the result only through x - mean(x), so shifting x changes nothing. Zero times the sum of g xhat, which
    the gradient needs anyway, keeps a NaN or an infinity of either visible, as an ordinary sum would.
    """
    if value.op != "standardize_backward":
        return None
    sum_g_xhat = value.operands[4]
    if sum_g_xhat.axes != axes or sum_g_xhat.op == "tensor":
        return None  # of the rows of all ranks only the sum over all of them vanishes
    return graph.add("vanishing", sum_g_xhat, name=f"{value.name}_sum")
