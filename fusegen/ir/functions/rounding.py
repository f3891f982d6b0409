"""Functions that are constant between jumps."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.ir.functions.function import Function
from fusegen.ir.graph import Graph, Node


def _none(graph: Graph, node: Node, g: Node) -> Sequence[Node | None]:
    """Zero, which PyTorch returns as well: what comes before has a gradient."""
    return (graph.add("no_gradient", g, name=f"d_{node.operands[0].name}"),)


FUNCTIONS = (
    Function("floor", _none),
    Function("ceil", _none),
    # Halves go to the even neighbour.
    Function("round", _none, "rint"),
    Function("trunc", _none),
    Function("sign", _none, operations=2),
    Function("no_gradient"),
)
