"""Cross entropies: a kernel has the losses of rows, and PyTorch's compiler their mean or sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import fx

from fusegen.aten import table
from fusegen.aten.nodes import argument, changed_memory, elements_of, memory_of, operator_of, shape_of, value_of
from fusegen.capture.casts import LAYOUTS, follow
from fusegen.capture.chain import Chain
from fusegen.capture.loss_forms import write_forms
from fusegen.capture.partition import Region
from fusegen.capture.roles import DTYPES, Frame

TOO_SMALL = "the loss is of so few values that a launch takes longer than reading them"
_LEAST_BYTES = 4 << 20  # that a GPU of 3 TB/s reads in the time of a launch

_loss = torch.ops.aten.cross_entropy_loss.default
_cast = torch.ops.aten.to.dtype
_NONE, _MEAN = 0, 1  # at::Reduction


def write_losses(graph: fx.Graph) -> None:
    """Makes the mean or the sum of a cross entropy one of the losses of rows, and a cast of the logits to float32 the
    operator in front of these: layouts between them then are of 16 bits. Other forms of the loss become one first, as
    write_forms() has them."""
    write_forms(graph)
    changed = changed_memory(graph)
    for node in graph.find_nodes(op="call_function", target=_loss):
        if is_loss(node):
            _of_rows(graph, node)
            _take_cast(graph, node, changed)


def losses(graph: fx.Graph) -> Iterator[Region]:
    """The losses of rows, each a region, with the cast in front of it."""
    changed = changed_memory(graph)
    for node in graph.find_nodes(op="call_function", target=_loss):
        if is_loss(node) and node.args[3] == _NONE:
            x = node.args[0]
            assert isinstance(x, fx.Node)
            with_cast = is_widened(x) and memory_of(x.args[0]) not in changed
            yield Region(Frame("rows", shape_of(x)), [x, node] if with_cast else [node])


def is_large(region: Region) -> bool:
    logits = region.nodes[0].args[0]
    x = value_of(logits)
    return x is not None and elements_of(logits) * x.itemsize >= _LEAST_BYTES


def loss_chain(region: Region) -> Chain:
    """The chain of the losses of rows."""
    node = region.nodes[-1]
    step = loss_step(node) | {"reduction": "none"}
    channels = region.frame.channels
    shapes, of_loss = loss_inputs(node, "channels")
    data = {
        "dims": {"batch": 4096, "channels": channels},
        "arguments": {"channels": {"type": "dim"}},
        "inputs": {"x": ["batch", "channels"], **shapes},
        "chain": [step],
    }
    tensors = {"x": region.nodes[0].args[0], **of_loss}
    return Chain(data, tensors, numbers={"_channels": int(channels)}, results=[(node, 0)])


def loss_step(node: fx.Node) -> dict[str, Any]:
    """The step of a loss, but for its reduction."""
    ignored, smoothing = argument(node, 4, "ignore_index", -100), argument(node, 5, "label_smoothing", 0.0)
    step: dict[str, Any] = {"op": "cross_entropy", "target": "target"}
    if ignored != -100:
        step["ignore_index"] = ignored
    if smoothing:
        step["label_smoothing"] = smoothing
    if argument(node, 2, "weight") is not None:
        step["weight"] = "weights"
    return step


def loss_inputs(node: fx.Node, channels: str) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """The shapes of what a loss takes besides the logits, by name, and the nodes. channels: the symbol of these."""
    shapes: dict[str, list[str]] = {"target": ["batch"]}
    nodes: dict[str, Any] = {"target": node.args[1]}
    if argument(node, 2, "weight") is not None:
        shapes["weights"], nodes["weights"] = [channels], node.args[2]
    return shapes, nodes


def is_loss(node: fx.Node) -> bool:
    """Whether a cross entropy of rows of logits, by the numbers of the wanted channels."""
    if node.target is not _loss:
        return False
    x, target, result = value_of(node.args[0]), value_of(node.args[1]), value_of(node)
    if x is None or target is None or result is None:
        return False
    given = argument(node, 2, "weight")
    weight = x if given is None else value_of(given)
    if weight is None or weight.dtype not in DTYPES or (given is not None and weight.requires_grad):
        return False
    numbers = argument(node, 4, "ignore_index", -100), argument(node, 5, "label_smoothing", 0.0)
    is_known = isinstance(numbers[0], int) and abs(numbers[0]) < 1 << 24 and isinstance(numbers[1], int | float)
    is_rows = x.dim() == 2 and target.dim() == 1 and isinstance(shape_of(node.args[0])[1], int)
    return is_known and is_rows and target.dtype == torch.int64 and {x.dtype, result.dtype} <= DTYPES


def _of_rows(graph: fx.Graph, node: fx.Node) -> None:
    """Rewrites a mean or a sum: added up in float32, as PyTorch does, and divided by the number of rows that count."""
    x, target = node.args[:2]
    reduction, ignored = argument(node, 3, "reduction", _MEAN), argument(node, 4, "ignore_index", -100)
    smoothing = argument(node, 5, "label_smoothing", 0.0)
    weight, dtype = argument(node, 2, "weight"), node.meta["val"].dtype
    node.args, node.kwargs = (x, target, weight, _NONE, ignored, smoothing), {}
    if reduction == _NONE:
        return
    behind = list(node.users)
    whole = {**node.meta}
    node.meta["val"] = value_of(target).new_empty(value_of(target).shape, dtype=dtype)  # type: ignore[union-attr]

    def add(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = graph.call_function(target, args, kwargs)
        made.meta = dict(whole)
        follow([made])
        return made

    aten = torch.ops.aten
    with graph.inserting_after(node):
        result = add(aten.sum.default, node, dtype=torch.float32)
    if reduction == _MEAN:
        with graph.inserting_after(result):
            counted = add(aten.ne.Scalar, target, ignored)
        behind_it = counted
        for make in _weights_of_rows(weight, target, counted) if weight is not None else ():
            with graph.inserting_after(behind_it):
                behind_it = add(*make(behind_it))
        with graph.inserting_after(behind_it):
            count = add(aten.sum.default, behind_it)
        with graph.inserting_after(count):
            result = add(aten.div.Tensor, result, count)
    if dtype != torch.float32:
        with graph.inserting_after(result):
            result = add(_cast, result, dtype)
    for user in behind:
        user.replace_input_with(node, result)


def _weights_of_rows(weight: Any, target: Any, counted: fx.Node) -> Iterator[Callable[[fx.Node], tuple[Any, ...]]]:
    """What makes one operator after the other, of the one before: the weight of each row's target in float32, and 0 of
    rows that do not count. A target that is no channel has the loss NaN, whatever its weight."""
    aten = torch.ops.aten
    yield lambda _: (aten.clamp.default, target, 0, int(shape_of(weight)[0]) - 1)
    yield lambda at: (aten.index_select.default, weight, 0, at)
    yield lambda of_rows: (_cast, of_rows, torch.float32)
    yield lambda wide: (aten.where.ScalarOther, counted, wide, 0)


def is_widened(x: Any) -> bool:
    """Whether a value is a cast of 16 bits to float32 that nothing else takes."""
    if operator_of(x)[1] not in table.CASTS or len(x.users) != 1:
        return False
    source, value = value_of(x.args[0]), value_of(x)
    if source is None or value is None or source.dtype not in DTYPES:
        return False
    return source.itemsize == 2 and value.dtype == torch.float32


def _take_cast(graph: fx.Graph, node: fx.Node, changed: Collection[int | None]) -> None:
    """Moves the cast of the logits behind the layouts that are between it and the loss. changed: memory that an
    operator changes in place."""
    path: list[fx.Node] = []
    at: Any = node.args[0]
    while operator_of(at)[1] in LAYOUTS and len(at.users) == 1 and len(at.all_input_nodes) == 1:
        path.insert(0, at)
        at = at.args[0]
    if not path or not is_widened(at) or memory_of(at.args[0]) in changed:
        return
    with graph.inserting_before(node):
        cast = graph.call_function(_cast, (path[-1], torch.float32))
    cast.meta = {**path[-1].meta}
    node.replace_input_with(path[-1], cast)
    path[0].replace_input_with(at, at.args[0])
    graph.erase_node(at)
    follow(path)
