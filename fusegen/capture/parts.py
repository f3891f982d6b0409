"""A graph in parts, between operators whose gradient a trace would lose."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

PREFIX = "fusegen_part_"
_MODES = ("_enter_autocast", "_exit_autocast", "_set_grad_enabled", "_enter_inference_mode", "_exit_inference_mode")


def divided(module: fx.GraphModule) -> fx.GraphModule | None:
    """A copy of Dynamo's graph, in which the operators between higher-order ones, such as an autograd.Function, are
    modules of their own, with the values of Dynamo as `example_value`s; None where modes begin or end in the graph, or
    where a part would return what is no tensor and no number."""
    copy = fx.Graph()
    copy.output(copy.graph_copy(module.graph, {}))
    outer = fx.GraphModule(module, copy)
    if any(getattr(node.target, "__name__", "") in _MODES for node in outer.graph.nodes):
        return None
    runs = [run for run in _runs(outer.graph) if len(run) > 1]
    if not runs or not all(map(_returns_tensors, runs)):
        return None
    fuse_by_partitions(outer, [dict.fromkeys(run) for run in runs], prefix=PREFIX)
    outer.recompile()
    return outer


def parts(module: fx.GraphModule) -> dict[str, fx.GraphModule]:
    """Those modules, by their names."""
    return {name: part for name, part in module.named_children() if name.startswith(PREFIX)}  # type: ignore[misc]


def _runs(graph: fx.Graph) -> Iterator[list[fx.Node]]:
    """Operators in a row, with no other between them."""
    run: list[fx.Node] = []
    outside: set[fx.Node] = set()
    for node in graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            outside.add(node)
            yield run
            run = []
        elif (
            node.target is operator.getitem and node.args[0] in outside and not isinstance(_value(node.args[0]), Tensor)
        ):
            outside.add(node)  # one of several results
        elif node.op in ("call_function", "call_method", "call_module"):
            run.append(node)
    yield run


def _returns_tensors(run: list[fx.Node]) -> bool:
    inside = set(run)
    made = [node for node in run if any(user not in inside for user in node.users)]
    return all(isinstance(_value(node), Tensor | int | float | torch.SymInt) for node in made)


def _value(node: Any) -> Any:
    return node.meta.get("example_value")
