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


def is_before_division(steps: Sequence[Any], index: int) -> bool:
    """Whether functions of elements alone are between a step and one that divides what they make."""
    for step in steps[index:]:
        if step is None or step.divides:
            return step is not None
        if not step.is_pointwise:
            return False
    return False


def refuse_multiples(chain: Any) -> None:
    """Refuses channels that are a multiple of a symbol, once nothing can divide them any more. chain: its builder."""
    if chain.channels is None or factors(chain.channels)[1] in (None, chain.channels):
        return
    anchor = chain.contraction or chain.convolution
    given = chain.batched.other if chain.batched else chain.inputs[0].name
    path = chain.places[anchor.name] if anchor else ("inputs", given)
    message = f"nothing divides the '{chain.channels}' channels into parts"
    hint = "'chunk' or a gated linear unit comes next, or a symbol of its own"
    chain.diagnostics.add("FG308", message, path, hint)
    chain.channels = None


def refuse_other_multiples(chain: Any) -> None:
    """The channels of the first input may be divided, or those of bmm's other one, and nothing else of them."""
    name, shape = (chain.inputs[0].name, chain.inputs[0].shape) if chain.inputs else ("", ())
    divisible, what = (name, 1 if chain.spatial else len(shape) - 1), "the channels of the first input"
    if chain.in_batches:
        first = chain.spec.chain[0]
        divisible, what = (first.input, 1 if first.transposed else 2), f"the channels of '{first.input}'"
    for given in chain.inputs:
        for place, dim in enumerate(given.shape):
            if dim is not None and factors(dim)[1] not in (None, dim) and (given.name, place) != divisible:
                message = f"'{dim}' is a multiple, which only {what} may be"
                chain.diagnostics.add("FG303", message, ("inputs", given.name, place), "give it a symbol of its own")
