"""Losses of a row, as graph nodes: of its values and the number of the channel that is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.ir.axes import Axes
from fusegen.ir.functions import softmax
from fusegen.ir.functions.function import Function
from fusegen.ir.functions.normalisation import count
from fusegen.ir.graph import Graph, Node
from fusegen.ir.reductions import channel_numbers


def cross_entropy(
    graph: Graph,
    x: Node,
    target: Node,
    over: Axes,
    name: str,
    ignored: float,
    smoothing: float,
    weight: Node | None = None,
    z_loss: float = 0.0,
) -> Node:
    """-sum(q w log softmax(x)), of each row. q: 1 - smoothing at the target, and `smoothing` in equal shares
    everywhere. w: a value of each channel; None for 1. z_loss: how much of the squared log(sum(exp(x))) is added.

    0 where the target is `ignored`, NaN where it is no channel.
    """
    _, total, distance = softmax.powers(graph, x, over, name)
    _, peak = distance.operands
    if weight is not None:
        distance = graph.add("mul", distance, weight, name=f"{name}_weighted_distance", temporary=True)
    wanted = graph.add("at_channel", distance, channel_numbers(graph), target, name=f"{name}_wanted", temporary=True)
    chosen = graph.add("sum", wanted, axes=over, name=f"{name}_chosen")
    if smoothing:
        chosen = graph.add("mul", chosen, graph.literal(1 - smoothing), name=f"{name}_weighted", temporary=True)
        every = graph.add("sum", distance, axes=over, name=f"{name}_every")
        share = graph.add("div", graph.literal(smoothing), count(graph, over), name=f"{name}_share")
        rest = graph.add("mul", every, share, name=f"{name}_rest", temporary=True)
        chosen = graph.add("add", chosen, rest, name=f"{name}_smoothed", temporary=True)
    log = graph.add("log", total, name=f"{name}_log_sum")
    if weight is not None:
        weights = _weights(graph, weight, target, over, name, smoothing)
        log = graph.add("mul", log, weights, name=f"{name}_weighted_log_sum", temporary=True)
    loss = graph.add("sub", log, chosen, name=f"{name}_loss", temporary=True)
    if z_loss:
        whole = graph.add("add", peak, graph.add("log", total, name=f"{name}_log_sum"), name=f"{name}_logsumexp")
        square = graph.add("mul", whole, whole, name=f"{name}_square", temporary=True)
        rest = graph.add("mul", square, graph.literal(z_loss), name=f"{name}_z_loss", temporary=True)
        loss = graph.add("add", loss, rest, name=f"{name}_loss_with_z", temporary=True)
    return graph.add("of_target", loss, target, graph.literal(ignored), count(graph, over), name=name)


def _weights(graph: Graph, weight: Node, target: Node, over: Axes, name: str, smoothing: float) -> Node:
    """sum(q w), of each row."""
    found = graph.add("at_channel", weight, channel_numbers(graph), target, name=f"{name}_weight", temporary=True)
    if smoothing:
        share = graph.add("div", graph.literal(smoothing), count(graph, over), name=f"{name}_share")
        rest = graph.add("mul", weight, share, name=f"{name}_weight_everywhere", temporary=True)
        found = graph.add("mul", found, graph.literal(1 - smoothing), name=f"{name}_weight_wanted", temporary=True)
        found = graph.add("add", found, rest, name=f"{name}_weight_smoothed", temporary=True)
    return graph.add("sum", found, axes=over, name=f"{name}_weights")


def _of_target(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    loss, *others = node.operands
    return graph.add("of_target", g, *others, name=f"d_{loss.name}"), None, None, None


FUNCTIONS = (
    # Of a loss or its gradient, the target, the one that is ignored, and the number of channels.
    Function("of_target", _of_target),
)
