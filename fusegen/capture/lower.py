"""Dynamo's graph as operators of ATen, before gradients, autocast and decompositions have changed any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from fusegen.aten.composite import write_out
from fusegen.capture.casts import write_casts
from fusegen.capture.in_place import functional_of, is_like, make_functional
from fusegen.capture.losses import write_losses
from fusegen.capture.parts import divided, parts
from fusegen.capture.sources import keep_sources

_CONTEXT = "_checkpoint_context_fn"
CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint


class NotLowered(Exception):
    """A graph that stays as Dynamo made it. Its text is why."""


def lower(module: fx.GraphModule) -> fx.GraphModule:
    """The graph that Dynamo made, as operators of ATen with the same inputs, under the modes of the caller. Raises
    NotLowered.

    Every node of a tensor has its fake as `meta["val"]`: sizes, strides, dtype and device. Changes in place of values
    of the graph are operators that make a new value, where nothing can tell the difference. Casts of autocast are
    operators, as write_casts() puts them, and losses those of rows, as write_losses() makes them. All of this holds in
    bodies(), too. A graph with an autograd.Function or the like stays Dynamo's, but for its parts.
    """
    _check(module.graph)
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled()), _checkpoints(module):
            lowered = _lowered(module)
    except Exception as error:  # PyTorch's, of many kinds: its own compiler has the graph, and says so if it cannot
        raise NotLowered(f"PyTorch cannot trace it: {type(error).__name__}: {error}".partition("\n")[0]) from error

    lost = _higher_order(module) - _higher_order(lowered)
    if lost:  # a trace has the forward pass of a hook or of an autograd.Function alone
        in_parts = _in_parts(module)
        if in_parts is None:
            raise NotLowered(f"a trace loses the gradient of {', '.join(sorted(lost))}")
        return in_parts
    return lowered


def _in_parts(module: fx.GraphModule) -> fx.GraphModule | None:
    """The graph with its operators between higher-order ones lowered; None if there are none that can be."""
    outer = divided(module)
    found = False
    for name, part in {} if outer is None else parts(outer).items():
        with suppress(NotLowered):
            setattr(outer, name, lower(part))
            found = True
    if outer is not None:
        outer.meta.update(module.meta)
        keep_sources(module, outer)
    return outer if found else None


def bodies(module: fx.GraphModule) -> list[fx.GraphModule]:
    """The graphs within a graph: its parts, and what torch.utils.checkpoint runs."""
    return [*parts(module).values(), *checkpoints(module)]


def _higher_order(module: fx.GraphModule) -> Counter[str]:
    """The operators of a graph, and of its parts, that have parts of graphs as operands."""
    graphs = [each.graph for each in module.modules() if isinstance(each, fx.GraphModule)]
    targets = [node.target for graph in graphs for node in graph.nodes]
    return Counter(each.name() for each in targets if isinstance(each, torch._ops.HigherOrderOperator))


def _check(graph: fx.Graph) -> None:
    """Raises NotLowered for what a trace would leave in disorder, or cannot have."""
    inputs = [node.meta.get("example_value") for node in graph.find_nodes(op="placeholder")]
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    if not tensors:
        raise NotLowered("it takes no tensor")
    for each in tensors:
        if not isinstance(each, FakeTensor):
            raise NotLowered(f"it takes a {type(each).__name__}")
    if any("_functorch" in str(getattr(node.target, "__module__", "")) for node in graph.nodes):
        raise NotLowered("a transform of torch.func is a part of it")


def checkpoints(module: fx.GraphModule) -> list[fx.GraphModule]:
    """The parts of a graph that torch.utils.checkpoint runs."""
    nodes = module.graph.find_nodes(op="call_function", target=CHECKPOINT)
    return list(dict.fromkeys(getattr(module, node.args[0].target) for node in nodes))


@contextmanager
def _checkpoints(module: fx.GraphModule) -> Iterator[None]:
    """Gives the checkpoints of a graph the context that a trace before dispatch asks of them, whether they have one or
    not: there it is as if they had none."""
    inner = (body for part in module.modules() if isinstance(part, fx.GraphModule) for body in checkpoints(part))
    bodies = [body for body in dict.fromkeys(inner) if _CONTEXT not in body.meta]
    for body in bodies:
        body.meta[_CONTEXT] = _all_again
    try:
        yield
    finally:
        for body in bodies:
            del body.meta[_CONTEXT]


def _all_again() -> Any:
    return create_selective_checkpoint_contexts(lambda *_, **__: CheckpointPolicy.PREFER_RECOMPUTE)


def _lowered(module: fx.GraphModule) -> fx.GraphModule:
    holders = module.graph.find_nodes(op="placeholder")
    given = [node.meta["example_value"] for node in holders]
    mode = next(x.fake_mode for x in given if isinstance(x, FakeTensor))

    def run(*inputs: Any) -> Any:
        with fx.traceback.preserve_node_meta():
            return UnderModes(module).run(*inputs)

    with mode:
        lowered = make_fx(run, pre_dispatch=True)(*given)
    for old, new in zip(holders, lowered.graph.find_nodes(op="placeholder"), strict=True):
        new.meta = {**old.meta, "val": old.meta["example_value"]}
    keep_sources(module, lowered)
    for body in lowered.modules():
        if isinstance(body, fx.GraphModule) and body.meta.get(_CONTEXT) is _all_again:
            del body.meta[_CONTEXT]
    values = _Values(lowered)
    with mode:
        values.run(*given)
        for each in values.seen:
            make_functional(each.module.graph, each.functional)
            write_out(each.module.graph)
            write_losses(each.module.graph)
            write_casts(each.module.graph)
            each.module.recompile()
    lowered.meta.update(module.meta)
    return lowered


class UnderModes(fx.Interpreter):
    """Runs under the autocast of the graph, which a trace notes and would not enter: a cast is none where it is off."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self._entered: list[torch.autocast] = []

    def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().run(*args, **kwargs)
        finally:
            while self._entered:
                self._entered.pop().__exit__(None, None, None)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.amp.autocast_mode._enter_autocast:
            self._entered.append(torch.autocast(*args, **kwargs))
            return self._entered[-1].__enter__()
        if target is torch.amp.autocast_mode._exit_autocast:
            return self._entered.pop().__exit__(None, None, None)
        return super().call_function(target, args, kwargs)


class _Values(UnderModes):
    """Notes the fake of each node's value.

    functional: of operators in place those that make a new value of the same dtype and strides. seen: this run, and
    those of checkpoints.
    """

    module: fx.GraphModule

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.functional: dict[fx.Node, torch._ops.OpOverload] = {}
        self.seen = [self]

    def run_node(self, n: fx.Node) -> Any:
        if n.target is CHECKPOINT:
            args, _ = self.fetch_args_kwargs_from_env(n)
            return self._within(*args)
        other = functional_of(n)
        like = None
        if other is not None:
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            like = other(*args, **kwargs)  # before the operand changes
        value = super().run_node(n)
        if isinstance(value, Tensor) and n.op == "call_function":
            n.meta["val"] = value.detach()
        if other is not None and isinstance(like, Tensor) and is_like(like, value):
            self.functional[n] = other
        return value

    def _within(self, body: fx.GraphModule, *given: Any) -> Any:
        """Of a checkpoint, under the modes that hold there."""
        for holder, value in zip(body.graph.find_nodes(op="placeholder"), given, strict=True):
            if isinstance(value, Tensor):
                holder.meta["val"] = value.detach().requires_grad_(value.requires_grad)
        inner = _Values(body)
        results = inner.run(*given)
        self.seen += inner.seen
        return results
