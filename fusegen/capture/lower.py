"""Dynamo's graph as operators of ATen, before gradients, autocast and decompositions have changed any."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from fusegen.aten import table
from fusegen.aten.composite import write_out

# Results that share the memory of an operand, or may.
_VIEWS = frozenset(
    """
    view reshape flatten unflatten unsqueeze squeeze view_as reshape_as expand expand_as broadcast_to contiguous alias
    slice select narrow split split_with_sizes chunk unbind detach t numpy_T transpose permute adjoint mT movedim
    moveaxis swapaxes swapdims diagonal unfold as_strided to type_as dropout
    """.split()
)


def lower(module: fx.GraphModule) -> fx.GraphModule:
    """The graph that Dynamo made, as operators of ATen with the same inputs, under the modes of the caller.

    Every node of a tensor has its fake as `meta["val"]`: sizes, strides, dtype and device. Changes in place of values
    of the graph are operators that make a new value, where nothing can tell the difference.
    """
    holders = module.graph.find_nodes(op="placeholder")
    given = [node.meta["example_value"] for node in holders]
    fakes = [x for x in given if isinstance(x, Tensor)]

    def run(*inputs: Any) -> Any:
        with fx.traceback.preserve_node_meta():
            return fx.Interpreter(module).run(*inputs)

    with fakes[0].fake_mode:
        lowered = make_fx(run, pre_dispatch=True)(*given)
    for old, new in zip(holders, lowered.graph.find_nodes(op="placeholder"), strict=True):
        new.meta = {**old.meta, "val": old.meta["example_value"]}
    _make_functional(lowered.graph)
    with fakes[0].fake_mode:
        _Values(lowered).run(*given)
        write_out(lowered.graph)
    lowered.recompile()
    lowered.meta.update(module.meta)
    return lowered


class _Values(fx.Interpreter):
    """Notes the fake of each node's value. A trace has none of what autocast does inside of the graph."""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor) and n.op == "call_function":
            n.meta["val"] = value.detach()
        return value


def operator_of(node: fx.Node) -> tuple[str, str]:
    """The name of a node's operator with its overload, and without; empty for what is none."""
    is_operator = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    return table.names(node.target) if is_operator else ("", "")


def value_of(node: Any) -> Tensor | None:
    """The fake of a node's tensor; None for what is none, or several."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, Tensor) else None


def shape_of(node: fx.Node) -> tuple[int | str, ...]:
    """The sizes of a node's tensor. Those that change are text: to compare symbols would add a guard."""
    value = value_of(node)
    sizes = () if value is None else tuple(map(str, value.shape))
    # A symbol of which the trace has learnt that it is one number prints as the number.
    return tuple(int(size) if size.isdecimal() else size for size in sizes)


def argument(node: fx.Node, index: int, name: str, default: Any = None) -> Any:
    """An argument of a node by its place, or its name."""
    return node.args[index] if index < len(node.args) else node.kwargs.get(name, default)


def in_order(nodes: Iterable[fx.Node]) -> None:
    """Moves nodes of a graph behind what they take; the others stay in order."""
    given = list(nodes)
    found: dict[fx.Node, None] = {}
    for node in given:
        waiting = [node]
        while waiting:
            last = waiting[-1]
            more = [each for each in last.all_input_nodes if each not in found]
            waiting += more
            if not more:
                found.setdefault(waiting.pop())
    order = list(found)
    for before, node in zip(order, order[1:], strict=False):
        before.append(node)


def _make_functional(graph: fx.Graph) -> None:
    """`relu_` of a value becomes `relu`, if no other value shares its memory."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or not table.is_in_place(target):
            continue
        source = node.args[0]
        packet = getattr(torch.ops.aten, table.names(target)[1], None)
        other = getattr(packet, target._overloadname, None)
        if other is None or not isinstance(source, fx.Node) or not _is_own(source):
            continue
        same = shape_of(source) == shape_of(node) and source.meta["val"].dtype == node.meta["val"].dtype
        if same:
            node.target = other
            for user in list(source.users):
                if user is not node and order[user] > order[node]:
                    user.replace_input_with(source, node)


def _is_own(node: fx.Node) -> bool:
    """Whether the memory of a node's value is that of no other."""
    is_operator = isinstance(node.target, torch._ops.OpOverload) and value_of(node) is not None
    if not is_operator or table.is_in_place(node.target):
        return False
    return not any(table.names(each.target)[1] in _VIEWS for each in (node, *node.users))
