"""Cross entropies that are written otherwise, as those of rows of logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fusegen.aten import table
from fusegen.aten.nodes import argument, changed_memory, memory_of, operator_of, shape_of, value_of
from fusegen.capture.casts import follow
from fusegen.capture.partition import sections_of

_aten = torch.ops.aten
_LOG_SOFTMAX = _aten._log_softmax.default
_NONE, _MEAN = 0, 1  # at::Reduction


def write_forms(graph: fx.Graph) -> None:
    """Makes the nll_loss of a log_softmax that nothing else takes a cross entropy, and a cross entropy of logits with
    positions, whose channels are next to each other in memory, one of rows."""
    _write_nll(graph)
    for node in graph.find_nodes(op="call_function", target=_aten.cross_entropy_loss.default):
        if _has_dense_channels(node):
            _flatten(graph, node)


def _write_nll(graph: fx.Graph) -> None:
    sections, changed = sections_of(graph), changed_memory(graph)
    for node in graph.find_nodes(op="call_function", target=_aten.nll_loss_nd.default):
        of: Any = node.args[0]
        if of.target is not _LOG_SOFTMAX or len(of.users) != 1 or sections[of] != sections[node]:
            continue
        x, dim, is_cast = of.args
        if is_cast or len(shape_of(x)) < 2 or dim % len(shape_of(x)) != 1 or memory_of(x) in changed:
            continue
        numbers = argument(node, 3, "reduction", _MEAN), argument(node, 4, "ignore_index", -100), 0.0
        target, weight = argument(node, 1, "target"), argument(node, 2, "weight")
        node.target, node.args, node.kwargs = _aten.cross_entropy_loss.default, (x, target, weight, *numbers), {}
        graph.erase_node(of)


def _has_dense_channels(node: fx.Node) -> bool:
    """Whether a loss takes logits [N, C, positions] that are [N, positions, C] in memory, and numbers of classes."""
    x, target = value_of(node.args[0]), value_of(node.args[1])
    if x is None or target is None or x.dim() < 3 or target.dim() != x.dim() - 1 or target.is_floating_point():
        return False
    return x.movedim(1, -1).is_contiguous()


def _flatten(graph: fx.Graph, node: fx.Node) -> None:
    """Rows of logits in the place of those with positions."""
    x, target, *others = node.args
    assert isinstance(x, fx.Node)
    rank = len(shape_of(x))
    moved = _before(x) or _add(graph, node, x, _aten.permute.default, x, [0, *range(2, rank), 1])
    rows = _add(graph, node, x, _aten.flatten.using_ints, moved, 0, rank - 2)
    of_rows = _add(graph, node, target, _aten.flatten.using_ints, target)
    node.args = (rows, of_rows, *others)
    if not x.users:
        graph.erase_node(x)
    if argument(node, 3, "reduction", _MEAN) != _NONE:
        return
    losses, users = node.meta["val"], list(node.users)
    follow([node])
    with graph.inserting_after(node):
        result = graph.call_function(_aten.view_as.default, (node, target))
    result.meta = {**node.meta, "val": losses}
    for user in users:
        user.replace_input_with(node, result)


def _before(x: Any) -> fx.Node | None:
    """The value whose channels were moved to dimension 1, by an operator that does nothing else; None if there is
    none."""
    if operator_of(x)[1] not in table.EXCHANGES or not isinstance(x.args[0], fx.Node):
        return None
    source, moved = value_of(x.args[0]), x.meta["val"].movedim(1, -1)
    if source is None or shape_of(x.args[0]) != (*shape_of(x)[:1], *shape_of(x)[2:], shape_of(x)[1]):
        return None
    return x.args[0] if list(map(str, source.stride())) == list(map(str, moved.stride())) else None


def _add(graph: fx.Graph, before: fx.Node, like: Any, target: Any, *args: Any) -> fx.Node:
    """An operator in front of a node, which is the user's as another one is."""
    with graph.inserting_before(before):
        made = graph.call_function(target, args)
    made.meta = dict(like.meta)
    follow([made])
    return made
