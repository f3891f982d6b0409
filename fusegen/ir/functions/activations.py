"""Activations. What an activation and its gradient share, as a sigmoid, is a function of its own."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.ir.functions.function import Function
from fusegen.ir.functions.gradients import multiply, through_both, through_input, through_output
from fusegen.ir.graph import Graph, Node


def _prelu(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    x, weight = node.operands
    return (
        graph.add("leaky_relu_backward", g, x, weight, name=f"d_{x.name}"),
        graph.add("prelu_weight_backward", g, x, name=f"d_{weight.name}", temporary=True),
    )


def _tanhshrink(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """g t^2 for t = tanh(x), from which the function is made."""
    x, tanh = node.operands
    slope = graph.add("square", tanh, name=f"slope_of_{node.name}", temporary=True)
    return multiply(graph, g, slope, f"d_{x.name}"), None


_COMPARISONS = (
    *("leaky_relu", "hardswish", "hardsigmoid", "softsign"),
    *("clamp", "clamp_min", "clamp_max", "hardtanh"),
    *("threshold", "hardshrink", "softshrink"),
)
_SMOOTH = ("gelu_tanh", "softplus", "logsigmoid")

FUNCTIONS = (
    # Of comparisons and arithmetic
    *(Function(name, through_input) for name in _COMPARISONS),
    *(Function(f"{name}_backward") for name in _COMPARISONS),
    Function("relu", through_input, by_sign=True),
    Function("relu_backward"),
    Function("prelu", _prelu, "leaky_relu"),
    Function("prelu_weight_backward"),
    # Of exponentials
    *(Function(name, through_input, by_result=True, costly=True) for name in _SMOOTH),
    *(Function(f"{name}_backward", by_result=True, costly=True) for name in _SMOOTH),
    Function("elu", through_input, costly=True),
    Function("elu_backward", by_result=True, costly=True),
    Function("sigmoid", through_output, by_result=True, costly=True),
    Function("sigmoid_backward"),
    Function("tanh", through_output, costly=True),
    Function("tanh_backward"),
    Function("tanhshrink", _tanhshrink, operations=3),
    # Of x and of what the gradient needs too
    Function("silu", through_both, "{} * {}"),
    Function("silu_slope", slope=True),
    Function("silu_backward", cpp="{} * {}"),
    Function("normal_cdf", by_result=True, costly=True),
    Function("gelu", through_both, "{} * {}"),
    Function("gelu_slope", by_result=True, costly=True, slope=True),
    Function("gelu_backward", cpp="{} * {}"),
    Function("bounded_exp", by_result=True, costly=True),
    Function("mish", through_both, by_result=True, costly=True),
    Function("mish_slope", by_result=True, costly=True, slope=True),
    Function("mish_backward", cpp="{} * {}"),
)
