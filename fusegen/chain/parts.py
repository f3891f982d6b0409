"""The chain's source divided into parts of its channels.

Each part is a leaf of the graph over [rows, channels of a part]. In memory they are side by side in each row of one
tensor, as are the gradients of all of them. A bias of the source's channels is divided likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.errors import InternalError
from fusegen.ir.axes import Axes
from fusegen.ir.functions.catalogue import FUNCTIONS
from fusegen.ir.graph import Graph, Node
from fusegen.ir.multiples import factors


def divide(graph: Graph, x: Node, count: int) -> tuple[tuple[Node, ...], dict[str, tuple[Node, ...]]]:
    """The parts of a value that is made of leaves and numbers alone, and the parts of each leaf by its name."""
    leaves: dict[str, tuple[Node, ...]] = {}

    def part(node: Node, index: int) -> Node:
        if node.op in ("scalar", "literal"):
            return node
        if node.op in FUNCTIONS:
            return graph.add(node.op, *(part(operand, index) for operand in node.operands), name=node.name)
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
    first = 1 if index and steps[0] is not None and steps[0].anchor else 0
    if not all(step is None or step.is_pointwise for step in steps[first:index]):
        return (
            "the value that is divided must be the chain's input, or the result of a layer that the chain begins with, "
            "behind functions of its elements alone"
        )
    if index and steps[index].from_ is not None:
        return "the value that is divided is that of the step in front: it cannot be from another one"
    if any(step is not None and step.save is not None for step in steps[:index]):
        return "the value that is divided cannot be saved as well: save its parts"
    return None


def refuse_multiples(chain: Any) -> None:
    """Refuses sizes of inputs that are a multiple of a symbol, but for channels. chain: its builder."""
    for given in chain.inputs:
        channels = len(given.shape) - 1 - chain.shape.spatial
        if chain.in_batches and given.name == chain.spec.chain[0].input:
            channels = 1 if chain.spec.chain[0].transposed else 2
        for place, dim in enumerate(given.shape):
            if dim is not None and factors(dim)[1] not in (None, dim) and place != channels:
                message = f"'{dim}' is a multiple, which only channels may be"
                chain.diagnostics.add("FG303", message, ("inputs", given.name, place), "give it a symbol of its own")
