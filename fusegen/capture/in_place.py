"""Changes in place as operators that make a new value, where nothing can tell the difference."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, fx

from fusegen.aten import table
from fusegen.aten.nodes import memory_of


def is_like(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors have the same dtype, sizes and strides."""
    return left.dtype == right.dtype and left.shape == right.shape and left.stride() == right.stride()


def functional_of(node: fx.Node) -> torch._ops.OpOverload | None:
    """The operator that makes a new value where the node's changes its operand; None where there is none."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not table.is_in_place(target):
        return None
    packet = getattr(torch.ops.aten, table.names(target)[1], None)
    other = getattr(packet, target._overloadname, None)
    if other is None or [each.name for each in other._schema.arguments] != [
        each.name for each in target._schema.arguments
    ]:
        return None
    return other


def make_functional(graph: fx.Graph, functional: Mapping[fx.Node, torch._ops.OpOverload]) -> None:
    """`relu_` of a value becomes `relu`, if nothing else has the memory then. functional: of nodes that may become so
    the operators, whose results are like the operands."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    for group in _by_memory(graph):
        own = set[fx.Node]()  # the value that is new, and what changes it
        for node in group:
            source = node.args[0] if node.args else None
            if node is group[0] and _is_new(node):
                own.add(node)
            elif table.is_in_place(node.target) and source in own:
                own.add(node)
                if node in functional and _is_alone(node, group, order):
                    _replace(node, functional[node], order)


def _replace(node: fx.Node, other: torch._ops.OpOverload, order: Mapping[fx.Node, int]) -> None:
    """Makes a new value of an operator's operand, for all that takes the operand behind it."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    node.target = other
    for user in list(source.users):
        if order[user] > order[node]:
            user.replace_input_with(source, node)


def _is_alone(node: fx.Node, group: Sequence[fx.Node], order: Mapping[fx.Node, int]) -> bool:
    """Whether no value but the operand is in its memory before an operator and taken behind it. group: of the memory.
    Views behind the operator are of what it makes, unless they are of several that were made before it."""
    for each in group:
        if each in (node, node.args[0]):
            continue
        if order[each] < order[node]:
            if any(order[user] > order[node] for user in each.users):
                return False
        elif each.target is operator.getitem and order[each.args[0]] < order[node]:  # type: ignore[index]
            return False
    return True


def _by_memory(graph: fx.Graph) -> list[list[fx.Node]]:
    """The nodes whose values share memory, in order."""
    groups: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        memory = memory_of(node)
        if memory is not None:
            groups.setdefault(memory, []).append(node)
    return list(groups.values())


def _is_new(node: fx.Node) -> bool:
    """Whether an operator makes a value in memory of its own, which is the first there."""
    return isinstance(node.target, torch._ops.OpOverload) and not table.is_in_place(node.target)
