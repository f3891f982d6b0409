"""Operators that PyTorch makes of others, as these: `multiply` is `mul`, `special_expit` is `sigmoid`, and `mse_loss`
without a reduction is the square of a difference."""

from __future__ import annotations

import operator
from collections.abc import Container
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import decomposition_table
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from fusegen.aten import table as aten
from fusegen.ops.lacking import LACKING


def write_out(graph: fx.Graph, others: Container[str] = ()) -> None:
    """Replaces each operator that no table has by those that PyTorch makes it of, if the tables have all of them.

    others: names of operators to which that is done too, though they are none that PyTorch makes of others.
    """
    for node in list(graph.nodes):
        if _is_composite(node, others) and not aten.is_known(node.target):
            parts = _parts(node)
            if parts is not None and all(map(_is_read, parts.nodes)):
                _replace(node, parts)
    graph.lint()


def _is_composite(node: fx.Node, others: Container[str]) -> bool:
    """Whether PyTorch makes an operator of others, and nothing is said of it by its own name."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = aten.names(node.target)[1]
    return name in others or (node.target._can_decompose() and name.replace("_", "") not in LACKING)


def _is_read(node: fx.Node) -> bool:
    return node.op != "call_function" or node.target is operator.getitem or aten.is_known(node.target)


def _parts(node: fx.Node) -> fx.Graph | None:
    """The operators that PyTorch calls for one, with a placeholder for each tensor; None if it cannot tell."""
    given, tree = tree_flatten((node.args, node.kwargs))
    at = [index for index, each in enumerate(given) if isinstance(each, fx.Node)]
    values = [given[index].meta.get("val") for index in at]
    if not values or not all(isinstance(each, Tensor) for each in values):
        return None

    def call(*tensors: Tensor) -> Any:
        with_tensors = list(given)
        for index, tensor in zip(at, tensors, strict=True):
            with_tensors[index] = tensor
        args, kwargs = tree_unflatten(with_tensors, tree)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    target: Any = node.target
    is_own = not target._can_decompose() and target in decomposition_table
    own = {target: decomposition_table[target]} if is_own else {}
    try:
        with values[0].fake_mode:
            parts = make_fx(call, decomposition_table=own)(*values).graph
    except Exception:  # PyTorch's, of many kinds: the operator stays, and is refused by its name
        return None
    return _without_ones(parts)


def _without_ones(graph: fx.Graph) -> fx.Graph:
    """Without factors of one, as those that addmm has, and without what is detached for a gradient alone."""
    for node in graph.nodes:
        if node.op == "call_function" and aten.names(node.target)[1] == "mul" and node.args[1] == 1:
            node.replace_all_uses_with(node.args[0])
    graph.eliminate_dead_code()
    return graph


def _replace(node: fx.Node, parts: fx.Graph) -> None:
    """Puts operators in the place of one. What they are of the module and its source is that of the one."""
    made: dict[fx.Node, Any] = dict(
        zip(parts.find_nodes(op="placeholder"), [each for each in _tensors(node)], strict=True)
    )
    with node.graph.inserting_before(node):
        for part in parts.nodes:
            if part.op == "call_function":
                made[part] = node.graph.node_copy(part, made.__getitem__)
                kept = {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}
                made[part].meta = {**kept, "val": part.meta.get("val")}
    (output,) = parts.find_nodes(op="output")
    results = fx.map_arg(output.args[0], made.__getitem__)
    if isinstance(results, fx.Node):
        node.replace_all_uses_with(results)
    else:
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            node.graph.erase_node(user)
    node.graph.erase_node(node)


def _tensors(node: fx.Node) -> list[fx.Node]:
    return [each for each in tree_flatten((node.args, node.kwargs))[0] if isinstance(each, fx.Node)]
