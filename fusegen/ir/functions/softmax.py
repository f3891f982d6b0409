"""Softmax as graph nodes: the largest element, the sum of exponentials of distances to it, then one function.

With p = softmax(x) the chain rule gives dx = p (g - sum(g p)), and with log p dx = g - p sum(g)
(PyTorch's derivatives.yaml, _softmax and _log_softmax). The largest element and the sum are therefore no operands of
their own to autodiff.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.ir.axes import Axes
from fusegen.ir.functions.function import Function
from fusegen.ir.functions.gradients import multiply
from fusegen.ir.graph import Graph, Node
from fusegen.ir.reduce import sum_to


def softmax(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    """exp(x - max) / sum(exp(x - max)), over what one element of `over` stands for."""
    power, total, _ = powers(graph, x, over, name)
    inverse = graph.add("reciprocal", total, name=f"{name}_inverse_sum")
    return graph.add("softmax", power, inverse, x, name=name)


def softmin(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    """The softmax of -x."""
    return softmax(graph, graph.add("negate", x, name=f"minus_{x.name}", temporary=True), over, name)


def log_softmax(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    """(x - max) - log(sum(exp(x - max)))."""
    _, total, distance = powers(graph, x, over, name)
    log = graph.add("log", total, name=f"{name}_log_sum")
    return graph.add("log_softmax", distance, log, x, name=name)


def logsumexp(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    """max + log(sum(exp(x - max))), one value for each element of `over`. Of infinities alone it is what they are, as
    in PyTorch, which then subtracts nothing."""
    peak = graph.add("finite_or_zero", _peak(graph, x, over, name), name=f"{name}_shift")
    peak = graph.add("detach", peak, name=f"{name}_peak")
    _, total, _ = powers(graph, x, over, name, peak)
    log = graph.add("log", total, name=f"{name}_log_sum")
    return graph.add("add", peak, log, name=name)


def _peak(graph: Graph, x: Node, over: Axes, name: str) -> Node:
    return graph.add("max", x, axes=over, name=f"{name}_max")


def powers(graph: Graph, x: Node, over: Axes, name: str, peak: Node | None = None) -> tuple[Node, Node, Node]:
    """(exp(x - peak), their sum, x - peak). peak: the largest element, unless another is given. Its gradient vanishes:
    it shifts numerator and denominator alike."""
    peak = peak or graph.add("detach", _peak(graph, x, over, name), name=f"{name}_peak")
    distance = graph.add("sub", x, peak, name=f"{name}_distance")
    power = graph.add("exp", distance, name=f"{name}_power")
    return power, graph.add("sum", power, axes=over, name=f"{name}_sum"), distance


def _softmax(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    _, inverse, x = node.operands
    total = sum_to(graph, multiply(graph, g, node, f"{g.name}_{node.name}"), inverse.axes)
    left = graph.add("sub", g, total, name=f"{node.name}_left", temporary=True)
    return None, None, multiply(graph, node, left, f"d_{x.name}")


def _log_softmax(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    _, log, x = node.operands
    share = graph.add("exp", node, name=f"{node.name}_power")
    removed = multiply(graph, share, sum_to(graph, g, log.axes), f"{node.name}_removed")
    return None, None, graph.add("sub", g, removed, name=f"d_{x.name}")


FUNCTIONS = (
    # x is the operand that the gradient goes to; the others have it in them.
    Function("softmax", _softmax, "{} * {}", is_product=True),
    Function("log_softmax", _log_softmax, "{} - {}"),
    Function("finite_or_zero"),
)
