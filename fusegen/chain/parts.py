"""The chain's source divided into parts of its channels.

Each part is a leaf of the graph over [rows, channels of a part]. In memory they are side by side in each row of one
tensor, as are the gradients of all of them. A bias of the source's channels is divided likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.errors import InternalError
from fusegen.ir.axes import Axes
from fusegen.ir.graph import Graph, Node


def divide(graph: Graph, x: Node, count: int) -> tuple[tuple[Node, ...], dict[str, tuple[Node, ...]]]:
    """The parts of a value that is a leaf, or the sum of such, and the parts of each leaf by its name."""
    leaves: dict[str, tuple[Node, ...]] = {}

    def part(node: Node, index: int) -> Node:
        if node.op == "add":
            return graph.add("add", *(part(operand, index) for operand in node.operands), name=node.name)
        if node.op != "tensor":
            raise InternalError(f"{node!r} cannot be divided")
        if node.name not in leaves:
            leaves[node.name] = _leaves(graph, node.name, node.axes, count)
        return leaves[node.name][index]

    return tuple(part(x, index) for index in range(count)), leaves


def _leaves(graph: Graph, name: str, axes: Axes, count: int) -> tuple[Node, ...]:
    claimed = [graph.claim(f"{name}_part{index + 1}") for index in range(count)]
    return tuple(graph.tensor(each, axes) for each in claimed)


def why_not_divided(steps: Sequence[Any], index: int) -> str | None:
    """Why the running value before step `index` cannot be divided; None where it can."""
    if index > 1 or (index == 1 and not (steps[0] is not None and steps[0].anchor)):
        return (
            "the value that is divided must be the chain's input, or the result of a layer that the chain begins with"
        )
    if index == 1 and steps[1].from_ is not None:
        return "the value that is divided is that of the layer in front: it cannot be from another one"
    if index == 1 and steps[0].save is not None:
        return "the value that is divided cannot be saved as well: save its parts"
    return None
