"""Products of float32 matrices that kernels make from pieces of fp16: linear layers in the precision fp32_split."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import torch
from torch import fx

from fusegen.aten.nodes import argument, elements_of, operator_of, shape_of, value_of
from fusegen.capture.chain import Chain
from fusegen.capture.partition import Region
from fusegen.capture.roles import Frame
from fusegen.explain.times import is_worth_splitting
from fusegen.plan.launches.devices import fastest

Precision = Literal["ieee", "fp32_split"]

NOT_WORTH = "its product is too small for pieces of fp16 to be faster, or as accurate"
_linear = torch.ops.aten.linear.default


def write_products(graph: fx.Graph) -> None:
    """Makes linear layers of products of rows with a matrix that are none in the graph: mm, addmm, and matmul."""
    for node in list(graph.nodes):
        _, name = operator_of(node)
        if name in ("mm", "matmul"):
            x, weight, bias = node.args[0], node.args[1], None
        elif name == "addmm" and not node.kwargs and len(node.args) == 3:
            bias, x, weight = node.args
        else:
            continue
        if not _is_product(node, x, _sizes(weight)[::-1], bias):
            continue
        with graph.inserting_before(node):
            turned = graph.call_function(torch.ops.aten.t.default, (weight,))
        turned.meta = {**node.meta, "val": value_of(weight).t()}  # type: ignore[union-attr]
        node.target, node.args = _linear, (x, turned, bias)


def products(graph: fx.Graph) -> list[Region]:
    """The linear layers of float32, each a region."""
    found = []
    for node in graph.find_nodes(op="call_function", target=_linear):
        if _is_product(node, node.args[0], _sizes(node.args[1]), argument(node, 2, "bias")):
            found.append(Region(Frame("rows", shape_of(node)), [node]))
    return found


def _sizes(node: Any) -> tuple[int | str, ...]:
    return shape_of(node) if isinstance(node, fx.Node) else ()


def _is_product(node: fx.Node, x: Any, weight: tuple[int | str, ...], bias: Any) -> bool:
    """Whether a node multiplies rows x by a weight of the sizes [channels, features]; everything is in float32."""
    values = [value_of(each) for each in (*node.all_input_nodes, node)]
    if any(value is None or value.dtype != torch.float32 or value.device != values[-1].device for value in values):  # type: ignore[union-attr]
        return False
    known = len(weight) == 2 and all(isinstance(size, int) and size for size in weight)
    return known and len(_sizes(x)) >= 2 and (bias is None or _sizes(bias) == (weight[0],))


def is_worth(region: Region, trained: Collection[fx.Node], targets: Collection[str]) -> bool:
    """Whether pieces are expected to be faster, for the number of rows that the graph was traced with."""
    (node,) = region.nodes
    channels, features = map(int, _sizes(node.args[1]))
    sizes = elements_of(node) // channels, channels, features
    return is_worth_splitting(fastest(targets), sizes, gradients=node in trained)


def product_chain(region: Region) -> Chain:
    """The chain of a linear layer."""
    (node,) = region.nodes
    channels, features = _sizes(node.args[1])
    bias = argument(node, 2, "bias")
    step: dict[str, Any] = {"op": "linear", "name": "linear", "out_features": "out_features"}
    if bias is None:
        step["bias"] = False
    data = {
        "dims": {"batch": 1024, "in_features": features, "out_features": channels},
        "arguments": {"in_features": {"type": "dim"}, "out_features": {"type": "dim"}},
        "inputs": {"x": ["batch", "in_features"]},
        "chain": [{**step, "precision": "fp32_split"}],
    }
    tensors = {"linear_input": node.args[0], "linear_weight": node.args[1]}
    if bias is not None:
        tensors["linear_bias"] = bias
    return Chain(data, tensors, {"linear_bias"}, results=[(node, 0)])  # type: ignore[arg-type]
