"""Cross entropies of a linear layer, whose logits kernels make some rows at a time: see docs/losses.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import torch
from torch import fx

from fusegen.aten import table
from fusegen.aten.nodes import argument, operator_of, shape_of, value_of
from fusegen.capture.casts import follow
from fusegen.capture.chain import Chain
from fusegen.capture.losses import is_loss, is_widened, loss_inputs, loss_step
from fusegen.capture.partition import Region, sections_of
from fusegen.capture.roles import DTYPES, Frame

Chunk = Literal["auto"] | int | None

_aten = torch.ops.aten
_SIZED = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)
_LAYOUTS = frozenset(
    (*_SIZED, _aten.flatten.using_ints, _aten.slice.Tensor, _aten.contiguous.default, _aten.clone.default)
)


def write_linear_losses(graph: fx.Graph) -> None:
    """Puts what lies between a linear layer and the loss of its result in front of the layer: views of leading
    dimensions, and the shift by one token of a language model. The casts that autocast makes in the layer become
    operators."""
    sections = sections_of(graph)
    for node in graph.find_nodes(op="call_function", target=_aten.cross_entropy_loss.default):
        path = _path(node) if is_loss(node) else None
        if path and _are_together([*path, node], sections):
            _move(graph, path)
            _cast(graph, path[0])


def linear_losses(graph: fx.Graph) -> Iterator[Region]:
    """Means and sums of losses, each a region from the layer on."""
    sections = sections_of(graph)
    for node in graph.find_nodes(op="call_function", target=_aten.cross_entropy_loss.default):
        if not is_loss(node):
            continue
        path, behind = _path(node), _behind(node)
        if path is None or len(path) > 1 or behind is None or len(shape_of(path[0].args[0])) != 2:
            continue
        if len({each.meta["val"].dtype for each in (*path[0].args[:2], path[0])}) > 1:  # type: ignore[union-attr]
            continue
        cast = [] if node.args[0] is path[0] else [node.args[0]]
        inside = {path[0], node, *cast, *behind}
        nodes = [each for each in graph.nodes if each in inside]
        if _are_together(nodes, sections):
            yield Region(Frame("rows", shape_of(path[0].args[0])), nodes)


def linear_loss_chain(region: Region, chunk: Chunk) -> Chain:
    """The chain of a region of linear_losses()."""
    linear, node = region.nodes[0], next(each for each in region.nodes if is_loss(each))
    channels, features = shape_of(linear.args[1])
    bias = argument(linear, 2, "bias")
    layer: dict[str, Any] = {"op": "linear", "name": "head", "out_features": "classes"}
    if bias is None:
        layer["bias"] = False
    is_mean = any(operator_of(each)[1] == "div" for each in region.nodes)
    loss = loss_step(node) | {"reduction": "mean" if is_mean else "sum", "chunk": chunk}
    shapes, of_loss = loss_inputs(node, "classes")
    data = {
        "dims": {"batch": 8192, "features": features, "classes": channels},
        "arguments": {"features": {"type": "dim"}, "classes": {"type": "dim"}},
        "inputs": {"x": ["batch", "features"], **shapes},
        "chain": [layer, loss],
    }
    tensors = {"head_input": linear.args[0], "head_weight": linear.args[1]}
    if bias is not None:
        tensors["head_bias"] = bias
    tensors |= of_loss
    numbers = {"_channels": int(channels), "_precision": 0}
    operands = {"head_input", "head_weight"}
    results = [(region.nodes[-1], 0)]
    return Chain(data, tensors, {"head_bias"}, operands=operands, numbers=numbers, results=results)  # type: ignore[arg-type]


def _are_together(nodes: Iterable[fx.Node], sections: Mapping[fx.Node, int]) -> bool:
    """Whether no change of memory or of a mode is between nodes."""
    return len({sections[node] for node in nodes}) == 1


def _path(node: fx.Node) -> list[fx.Node] | None:
    """The layer whose result a loss is of, and the layouts between them; None where it is of something else, or others
    take a value on the way."""
    at: Any = node.args[0]
    if is_widened(at):
        at = at.args[0]
    path: list[fx.Node] = []
    while isinstance(at, fx.Node) and len(at.users) == 1 and _is_layout(at):
        path.insert(0, at)
        at = at.args[0]
    if not isinstance(at, fx.Node) or at.target is not _aten.linear.default or len(at.users) != 1:
        return None
    values = [value_of(each) for each in (*at.all_input_nodes, at)]
    dtypes = {None if value is None else value.dtype for value in values}
    sizes = shape_of(at.args[1])
    known = dtypes <= DTYPES and len(sizes) == 2 and all(isinstance(size, int) for size in sizes)
    return [at, *path] if known else None


def _is_layout(node: fx.Node) -> bool:
    """Whether a node is a layout that leaves the last dimension alone, or a cast that changes nothing."""
    if _is_idle(node):
        return True
    if node.target not in _LAYOUTS:
        return False
    before, after = shape_of(node.args[0]), shape_of(node)
    if node.target is _aten.slice.Tensor:
        dim = argument(node, 1, "dim", 0)
        return isinstance(dim, int) and dim % len(before) != len(before) - 1
    return bool(before) and bool(after) and before[-1] == after[-1] and isinstance(after[-1], int)


def _is_idle(node: fx.Node) -> bool:
    same = operator_of(node)[1] in table.CASTS and isinstance(node.args[0], fx.Node)
    return same and node.args[0].meta["val"].dtype == node.meta["val"].dtype  # type: ignore[union-attr]


def _move(graph: fx.Graph, path: list[fx.Node]) -> None:
    """Lets a linear layer take what layouts make of its input. path: the layer and the layouts behind it."""
    linear, *layouts = path
    features = shape_of(linear.args[0])[-1]
    last, behind = linear.args[0], layouts[-1] if layouts else linear
    for each in layouts:
        if _is_idle(each):
            continue
        args = list(each.args)
        if each.target in _SIZED:
            args[1] = [*args[1][:-1], features]  # type: ignore[index,misc]
        with graph.inserting_before(linear):
            target: Any = _aten.reshape.default if each.target in _SIZED else each.target
            made = graph.call_function(target, (last, *args[1:]), dict(each.kwargs))
        made.meta = dict(each.meta)
        follow([made])
        last = made
    if not layouts:
        return
    behind.replace_all_uses_with(linear)
    linear.update_arg(0, last)
    follow([linear])
    for each in reversed(layouts):
        graph.erase_node(each)


def _cast(graph: fx.Graph, linear: fx.Node) -> None:
    dtype = linear.meta["val"].dtype
    for place, operand in enumerate(linear.args[:2]):
        assert isinstance(operand, fx.Node)
        if operand.meta["val"].dtype == dtype:
            continue
        with graph.inserting_before(linear):
            made = graph.call_function(_aten.to.dtype, (operand, dtype))
        made.meta = dict(operand.meta)
        follow([made])
        linear.update_arg(place, made)


def _behind(node: fx.Node) -> list[fx.Node] | None:
    """What write_losses() has made of the mean or the sum of losses, in order; None where there is something else."""
    if len(node.users) != 1:
        return None
    total = next(iter(node.users))
    if total.target is not _aten.sum.default or total.kwargs.get("dtype") != torch.float32:
        return None
    mean = next(iter(total.users), None)
    if len(total.users) != 1 or mean is None or mean.target is not _aten.div.Tensor or mean.args[0] is not total:
        return [total]
    count = _count_of(node, mean.args[1])
    if count is None:
        return [total]
    return [total, *(count if all(len(each.users) == 1 for each in count) else ()), mean]


def _count_of(node: fx.Node, count: Any) -> list[fx.Node] | None:
    """What write_losses() has made of the rows of a loss that count, or of the weights of their targets, in order; None
    where there is something else."""
    _, target, weight, _, ignored, _ = node.args
    if not isinstance(count, fx.Node) or count.target is not _aten.sum.default:
        return None
    counted: Any = count.args[0]
    path: list[Any] = [count]
    if weight is not None:
        if not isinstance(counted, fx.Node) or counted.target is not _aten.where.ScalarOther:
            return None
        where: Any = counted
        at: Any = where.args[1]
        counted, path = where.args[0], [where, count]
        for name in ("to", "index_select", "clamp"):
            if operator_of(at)[1] != name:
                return None
            path.insert(0, at)
            at = at.args[2 if name == "index_select" else 0]
        if at is not target or path[1].args[0] is not weight:
            return None
    if operator_of(counted)[1] != "ne" or counted.args != (target, ignored):
        return None
    return [counted, *path]
