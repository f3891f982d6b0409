"""Which regions are worth a package: where its kernels are faster than what PyTorch's compiler makes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import torch
from torch import Tensor, fx

from fusegen.aten import table
from fusegen.aten.nodes import operator_of, value_of
from fusegen.capture.partition import Region

Choose = Literal["faster", "all"]

# docs/performance.md has norms beside torch.compile: faster in a training step, as fast or slower in a forward pass.
NO_GRADIENT = "no gradient flows through it, and PyTorch's compiler fuses a forward pass as well"
# Of a layer norm under autocast 14 bytes for each element in the place of 6, forward: a result in float32 is written,
# read, and written in 16 bits.
CAST_BEHIND = "what takes its result in float32 casts it to 16 bits, and PyTorch's compiler writes 16 bits at once"

_LAYOUTS = table.SAME_ELEMENTS | table.EXCHANGES | {"roll", "select"}


def obstacle(region: Region, trained: Collection[fx.Node]) -> str | None:
    """Why a region's kernels would not be faster. trained: what with_gradients() returns for its graph."""
    if not any(node in trained for node in region.nodes):
        return NO_GRADIENT
    inside = set(region.nodes)
    if any(_is_cast_by_all(node, inside) for node in region.results):
        return CAST_BEHIND
    return None


def _is_cast_by_all(node: fx.Node, inside: Collection[fx.Node] = ()) -> bool:
    """Whether all that takes a value in float32 makes 16 bits of it. inside: nodes that do not count."""
    users = [user for user in node.users if user not in inside]
    return _width(node) == 4 and bool(users) and all(map(_is_cast, users))


def _is_cast(user: fx.Node) -> bool:
    if operator_of(user)[1] in ("chunk", "split", "split_with_sizes", "unbind"):
        return bool(user.users) and all(map(_is_cast_by_all, user.users))
    if operator_of(user)[1] in _LAYOUTS and _width(user) == 4:
        return _is_cast_by_all(user)
    return _width(user) == 2


def _width(node: fx.Node) -> int | None:
    """The bytes of a floating-point number of the node's tensor."""
    value = value_of(node)
    return value.dtype.itemsize if value is not None and value.is_floating_point() else None


def with_gradients(graph: fx.Graph) -> set[fx.Node]:
    """The nodes of a graph through which a backward pass runs, where gradients are on or off as they are now."""
    found: set[fx.Node] = set()
    is_on = torch.is_grad_enabled()
    for node in graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("val")
            is_trained = isinstance(value, Tensor) and value.requires_grad
        elif node.target is torch._C._set_grad_enabled:
            is_on = bool(node.args[0])
            continue
        else:
            is_cut = node.target is torch.ops.aten.detach.default
            is_trained = is_on and not is_cut and any(each in found for each in node.all_input_nodes)
        if is_trained:
            found.add(node)
    return found
