"""What a node of a graph of ATen is: its operator, the arguments of that, and its tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from fusegen.aten import table


def operator_of(node: fx.Node) -> tuple[str, str]:
    """The name of a node's operator with its overload, and without; empty for what is none."""
    is_operator = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    return table.names(node.target) if is_operator else ("", "")


def value_of(node: Any) -> Tensor | None:
    """The fake of a node's tensor; None for what is none, or several."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, Tensor) else None


def elements_of(node: Any) -> int:
    """The number of elements of the node's tensor in the call that was traced; 0 where that depends on values."""
    value = value_of(node)
    return 0 if value is None else known(value.numel()) or 0


def known(size: Any) -> int | None:
    """The value that a size, an int or a SymInt, has in the call that was traced; None where it depends on values of
    tensors. Reading the hint of a symbol adds no guard."""
    hint = size if isinstance(size, int) else size.node.hint
    return None if hint is None else int(hint)


def memory_of(node: Any) -> int | None:
    """An identifier of the storage of a node's tensor, equal for views of one storage; None where the value is no
    strided tensor."""
    value = value_of(node)
    return None if value is None or value.layout is not torch.strided else value.untyped_storage()._cdata


def changed_memory(graph: fx.Graph) -> set[int | None]:
    """The memory_of() of all values that an operator of the graph changes in place."""
    found: set[int | None] = set()
    for node in graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            for index, each in enumerate(node.target._schema.arguments):
                if each.alias_info is not None and each.alias_info.is_write:
                    fx.node.map_arg(argument(node, index, each.name), lambda value: found.add(memory_of(value)))
    return found


def shape(node: Any) -> tuple[Any, ...]:
    """The sizes of the node's tensor: numbers, or symbols where they are dynamic."""
    value = value_of(node)
    sizes = () if value is None else tuple(value.shape)
    # A symbol of which the trace has learnt that it is one number still is a symbol, but prints as the number.
    return tuple(int(str(size)) if str(size).isdecimal() else size for size in sizes)


def shape_of(node: Any) -> tuple[int | str, ...]:
    """The sizes of the node's tensor: ints, and the text of each symbol. Comparing symbols would add a guard."""
    return tuple(size if isinstance(size, int) else str(size) for size in shape(node))


def argument(node: fx.Node, index: int, name: str, default: Any = None) -> Any:
    """An argument of a node by its place, or its name."""
    return node.args[index] if index < len(node.args) else node.kwargs.get(name, default)
