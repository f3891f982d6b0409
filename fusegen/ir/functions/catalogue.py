"""Every function, by its name in the graph."""

from __future__ import annotations

from fusegen.ir.functions import (
    activations,
    arithmetic,
    losses,
    normalisation,
    powers,
    reduced,
    rounding,
    softmax,
    transcendental,
)
from fusegen.ir.functions.function import Function
from fusegen.ir.graph import Node

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for module in (arithmetic, powers, transcendental, rounding, activations, normalisation, softmax, reduced, losses)
    for function in module.FUNCTIONS
}
# What picks a result of a reduction is no function of elements.
_OTHER = Function("other")


def known_of(node: Node) -> Function:
    """The entry of the function that a node applies; a neutral one for any other node."""
    return FUNCTIONS.get(node.op, _OTHER)


def is_costly(node: Node) -> bool:
    return known_of(node).costly


def is_slope(node: Node) -> bool:
    return known_of(node).slope


def is_by_sign(node: Node) -> bool:
    return known_of(node).by_sign
