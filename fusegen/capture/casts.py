"""Casts of autocast as operators of the graph, where a region can make them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from fusegen.aten import table
from fusegen.aten.nodes import changed_memory, memory_of, operator_of, value_of
from fusegen.capture.roles import kind_of

# Over which a cast may move.
LAYOUTS = (table.SAME_ELEMENTS - table.EXPANSIONS) | table.EXCHANGES | {"roll", "select"}


def write_casts(graph: fx.Graph) -> None:
    """Puts the cast of a value to 16 bits, which autocast makes in an operator that takes it, behind the operator that
    makes the value.

    The value is one that a region may make and nothing changes in place, and has one such cast: of several PyTorch adds
    the gradients in float32, which those of one cast would not be.
    """
    changed = changed_memory(graph)
    for node in list(graph.nodes):
        if kind_of(node) is None or _dtype(node) != torch.float32 or memory_of(node) in changed:
            continue
        paths = [path for user in node.users if (path := _to_cast(node, user)) is not None]
        if len(paths) == 1:
            _write(graph, node, paths[0])


def _to_cast(node: fx.Node, user: fx.Node) -> list[fx.Node] | None:
    """The nodes from a user of a value to the one that casts it, between which are layouts alone; None if there is
    none."""
    path = [user]
    while operator_of(path[-1])[1] in LAYOUTS and _dtype(path[-1]) == torch.float32 and len(path[-1].users) == 1:
        path.append(next(iter(path[-1].users)))
    last, before = path[-1], path[-2] if len(path) > 1 else node
    _, name = operator_of(last)
    is_operator = bool(name) and name not in table.CASTS and not last.target._schema.is_mutable  # type: ignore[union-attr]
    once = [*last.args, *last.kwargs.values()].count(before) == 1
    return path if is_operator and once and _dtype(last) in (torch.bfloat16, torch.float16) else None


def _write(graph: fx.Graph, node: fx.Node, path: Sequence[fx.Node]) -> None:
    """Puts a cast in front of what is between a value and the node that casts it."""
    dtype = _dtype(path[-1])
    with graph.inserting_after(node):
        cast = graph.call_function(torch.ops.aten.to.dtype, (node, dtype))
    value = value_of(node)
    assert value is not None
    cast.meta = {**node.meta, "val": value.to(dtype)}
    path[0].replace_input_with(node, cast)
    follow(path[:-1])


def follow(layouts: Sequence[fx.Node]) -> None:
    """Computes `meta["val"]` of each node, operands first, by running its operator on the fakes of its operands."""
    for node in layouts:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
        node.meta["val"] = node.target(*args, **kwargs)  # type: ignore[operator]


def _dtype(node: fx.Node) -> torch.dtype | None:
    value = value_of(node)
    return None if value is None else value.dtype
