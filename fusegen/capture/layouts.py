"""Images in channels_last, where PyTorch's compiler would have them so.

Inductor chooses the memory format of convolutions when it has the graph, which is too late for calls of packages: their
operands have the format that was traced, and would be copied from one format to the other and back. So the graph gets
channels_last before it is divided: a copy where images come in, and one where they leave.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._inductor import config
from torch._subclasses import FakeTensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fusegen.aten.nodes import argument, changed_memory, memory_of, operator_of, shape_of, value_of
from fusegen.capture.lower import CHECKPOINT, UnderModes, checkpoints
from fusegen.capture.sources import keep_sources

_CONVOLUTIONS = ("conv2d", "conv_transpose2d")
_BY_STRIDES = ("as_strided", "set_", "resize_", "stride", "sym_stride", "storage_offset", "sym_storage_offset")
_MODES = ("_enter_inference_mode", "_exit_inference_mode")
_CLONE, _PERMUTE = torch.ops.aten.clone.default, torch.ops.aten.permute.default
_SMALL = 64  # channels

_log = logging.getLogger("fusegen")


class _Stays(Exception):
    """A graph that is only right with the strides that were traced. Its text is why."""


def in_channels_last(module: fx.GraphModule, options: Mapping[str, Any]) -> fx.GraphModule:
    """The lowered graph with its images in channels_last, whose results are those that it had, with their strides; the
    graph itself where that would not be faster, or could not be. options: Inductor's."""
    graphs = [module.graph, *(body.graph for body in _all_checkpoints(module))]
    convolutions = _convolutions(*graphs)
    if not _option("layout_optimization", options) or not (
        _is_of_16_bits(convolutions) or _by_inductor(convolutions, options)
    ):
        return module
    try:
        _check(graphs, convolutions, options)
        return _brought(module)
    except Exception as why:  # PyTorch's, too: some operators take tensors of some strides only
        _log.info("images stay as they are: %s: %s", type(why).__name__, str(why).partition("\n")[0])
        return module


def changes_format(graph: fx.Graph, options: Mapping[str, Any]) -> bool:
    """Whether Inductor brings contiguous images of the graph into channels_last. options: its own."""
    return _by_inductor(_convolutions(graph), options)


def is_last(node: Any) -> bool:
    """Whether the node's tensor is an image in channels_last."""
    value = value_of(node)
    return value is not None and value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)


def _option(name: str, options: Mapping[str, Any]) -> bool:
    return bool(options.get(name, getattr(config, name)))


def _all_checkpoints(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """What torch.utils.checkpoint runs, also within each other."""
    for body in checkpoints(module):
        yield body
        yield from _all_checkpoints(body)


def _convolutions(*graphs: fx.Graph) -> list[fx.Node]:
    """Those of images, where some of these are not in channels_last; else none."""
    found = [node for graph in graphs for node in graph.nodes if _is_of_images(node)]
    return [] if all(is_last(node.args[0]) for node in found) else found


def _is_of_images(node: fx.Node) -> bool:
    """Whether it is a convolution of [batch, channels, height, width]."""
    return operator_of(node)[1] in _CONVOLUTIONS and len(shape_of(node.args[0])) == 4


def _is_of_16_bits(convolutions: Sequence[fx.Node]) -> bool:
    """Whether tensor cores multiply: what they take is in channels_last, so that cuDNN copies contiguous operands and
    results in each call. Groups of several channels have no such kernels. By the results, as autocast has the operands
    cast only when they are used."""
    return bool(convolutions) and all(
        (value := value_of(node)) is not None and value.dtype.itemsize == 2 and not _is_grouped(node)
        for node in convolutions
    )


def _by_inductor(convolutions: Sequence[fx.Node], options: Mapping[str, Any]) -> bool:
    """Whether Inductor is expected to bring the images of a training step into channels_last: most of the conditions of
    decide_layout_opt() of its graph.py."""
    shapes = [shape_of(given) for node in convolutions for given in node.args[:2]]
    if not shapes or not _option("layout_optimization", options):
        return False
    if not all(isinstance(size, int) for sizes in shapes for size in sizes):
        return False
    narrowing = any(2 * out <= given and height > 1 for out, given, height, _ in shapes[1::2])  # type: ignore[operator]
    small = all(out <= _SMALL and given <= _SMALL for out, given, *_ in shapes[1::2])  # type: ignore[operator]
    is_slower = narrowing or small or any(map(_is_grouped, convolutions))
    return _option("force_layout_optimization", options) or not is_slower


def _is_grouped(node: fx.Node) -> bool:
    """Whether a convolution has groups of several channels."""
    return argument(node, 6, "groups", 1) != 1 and shape_of(node.args[1])[1] != 1


def _check(graphs: Sequence[fx.Graph], convolutions: Sequence[fx.Node], options: Mapping[str, Any]) -> None:
    """Raises _Stays where an operator has strides that were traced, or where a copy would change what is computed."""
    if _option("fallback_random", options):
        raise _Stays("random numbers are drawn in the order of memory")
    if any(0 in shape_of(node.args[0]) for node in convolutions):
        raise _Stays("there are images without elements")
    is_on = torch.is_grad_enabled()
    for node in graphs[0].nodes:
        is_on = bool(node.args[0]) if node.target is torch._C._set_grad_enabled else is_on
    if is_on != torch.is_grad_enabled():
        raise _Stays("gradients are on or off at its end alone")
    for graph in graphs:
        for node in graph.nodes:
            target, name = node.target, operator_of(node)[1]
            is_foreign = isinstance(target, torch._ops.OpOverload) and target.namespace not in ("aten", "prims")
            is_higher = isinstance(target, torch._ops.HigherOrderOperator) and target is not CHECKPOINT
            if is_foreign or is_higher or name in _BY_STRIDES or getattr(target, "__name__", "") in _MODES:
                raise _Stays(f"{target} is one of its operators")
            if free_unbacked_symbols(node.meta.get("val")):
                raise _Stays("it has sizes that depend on values")


def _brought(module: fx.GraphModule) -> fx.GraphModule:
    """A copy in channels_last. Raises _Stays, and what PyTorch's operators raise."""
    made, nodes = _copied(module)
    keep_sources(module, made)
    given = [node.meta["example_value"] for node in made.graph.find_nodes(op="placeholder")]
    mode = next(x.fake_mode for x in given if isinstance(x, FakeTensor))
    with mode, torch.set_grad_enabled(torch.is_grad_enabled()):
        _Images(made).run(*given)
        _keep_strides(made.graph, {new: old for old, new in nodes.items()})
    for each in (made, *_all_checkpoints(made)):
        each.graph.lint()
        each.recompile()
    return made


def _copied(module: fx.GraphModule) -> tuple[fx.GraphModule, dict[fx.Node, fx.Node]]:
    """A graph with the same attributes, and its nodes by those of the original."""
    nodes: dict[fx.Node, fx.Node] = {}
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, nodes))
    made = fx.GraphModule(module, graph)
    made.meta.update(module.meta)
    return made, nodes


class _Images(UnderModes):
    """Notes the fakes of all values, where each convolution has its operand in channels_last. Raises _Stays where other
    values would share memory than before, and that can be told."""

    module: fx.GraphModule

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self._nodes = set(module.graph.nodes)
        self._shared = _shared(self._nodes, module.graph)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        results = super().run(*args, **kwargs)
        if _shared(self._nodes, self.module.graph) != self._shared:
            raise _Stays("views of images are changed in place, or are results")
        return results

    def run_node(self, n: fx.Node) -> Any:
        if n.target is CHECKPOINT:
            return self._within(n)
        if _is_of_images(n):
            self._bring(n)
        if n.target is torch.ops.aten.view.default:
            args, _ = self.fetch_args_kwargs_from_env(n)
            if not args[0].is_contiguous():
                n.target = torch.ops.aten.reshape.default  # a copy where it can be no view
        value = super().run_node(n)
        if isinstance(value, Tensor) and n.op == "call_function":
            n.meta["val"] = value.detach()
        return value

    def _within(self, node: fx.Node) -> Any:
        """Of a checkpoint, whose graph others may have: it gets one of its own."""
        (_, *given), _ = self.fetch_args_kwargs_from_env(node)
        name = str(node.args[0].target)  # type: ignore[union-attr]
        body, _ = _copied(getattr(self.module, name))
        setattr(self.module, name, body)
        inner = _Images(body)
        for holder, value in zip(body.graph.find_nodes(op="placeholder"), given, strict=True):
            if isinstance(value, Tensor):
                holder.meta["val"] = value.detach().requires_grad_(value.requires_grad)
        return inner.run(*given)

    def _bring(self, node: fx.Node) -> None:
        """Each convolution has a copy of its own: between two of them its operand may change, or gradients be off."""
        given = node.args[0]
        assert isinstance(given, fx.Node)
        if self.env[given].is_contiguous(memory_format=torch.channels_last):
            return  # others before it have brought it there
        with node.graph.inserting_before(node):
            copied = _call(_CLONE, given, memory_format=torch.channels_last)
        self.env[copied] = self.env[given].clone(memory_format=torch.channels_last)
        node.replace_input_with(given, copied)


def _shared(nodes: Collection[fx.Node], graph: fx.Graph) -> set[frozenset[fx.Node]]:
    """Which of a graph's nodes share memory, as far as that can be told: inputs and results, and what is changed in
    place with all that shares its memory."""
    ends = {*graph.find_nodes(op="placeholder"), *graph.output_node().all_input_nodes}
    changed = changed_memory(graph)
    groups: dict[int, set[fx.Node]] = {}
    for node in nodes:
        memory = memory_of(node)
        if memory is not None and (memory in changed or node in ends):
            groups.setdefault(memory, set()).add(node)
    return {frozenset(group) for group in groups.values()}


def _call(operator: torch._ops.OpOverload, node: fx.Node, *args: Any, **kwargs: Any) -> fx.Node:
    """A node of an operator of another node's value."""
    made = node.graph.call_function(operator, (node, *args), kwargs)
    made.meta["val"] = operator(node.meta["val"], *args, **kwargs).detach()
    return made


def _keep_strides(graph: fx.Graph, before: Mapping[fx.Node, fx.Node]) -> None:
    """Brings results back to the strides that they had. before: the nodes of the graph as it was. Raises _Stays where a
    copy would part results that share memory, or give other strides."""
    end = graph.output_node()
    results = list(dict.fromkeys(end.all_input_nodes))
    memory = [memory_of(node) for node in results]
    for node in results:
        new, old = value_of(node), value_of(before[node])
        if new is None or old is None or new.stride() == old.stride():
            continue
        if memory.count(memory_of(node)) > 1 or not all(isinstance(each, int) for each in old.stride()):
            raise _Stays("results share memory")
        order = sorted(range(old.dim()), key=old.stride, reverse=True)  # of the dimensions, in memory
        back = [order.index(at) for at in range(old.dim())]
        with graph.inserting_before(end):
            dense = _call(_CLONE, _call(_PERMUTE, node, order), memory_format=torch.contiguous_format)
            copied = _call(_PERMUTE, dense, back)
        if copied.meta["val"].stride() != old.stride():
            raise _Stays("a result has strides that no copy has")
        end.replace_input_with(node, copied)
