"""The module as a graph of aten operators, by torch.export, with every size of the inputs dynamic that can be."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind

from fusegen.aten import table as aten
from fusegen.aten.composite import write_out
from fusegen.importing.traces.sizes import check_conditions
from fusegen.importing.traces.source_locations import SourceLine, is_theirs, of_error, of_trace, refusal

Kind = Literal["input", "parameter", "buffer", "constant"]
_KINDS: dict[InputKind, Kind] = {
    InputKind.USER_INPUT: "input",
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_DATA_DEPENDENT = "control flow that depends on values of a tensor"
_RESULTS = "a chain returns a tensor, or a tuple of tensors"
_NO_FLOW = "a chain is the same for all values: clamp, relu and the like choose by element"


@dataclass(frozen=True)
class Leaf:
    """What the graph takes: an input by its name, a parameter, a buffer or a constant by its path in the module."""

    kind: Kind
    name: str


@dataclass(frozen=True)
class Trace:
    """nodes: the operators in order. leaves: by the nodes that stand for them. results: the nodes that are returned.
    several: whether that is a tuple. is_for_all: whether its operators take any number of rows."""

    module: nn.Module
    training: bool
    nodes: tuple[fx.Node, ...]
    leaves: dict[fx.Node, Leaf]
    results: tuple[fx.Node, ...]
    several: bool = False
    is_for_all: bool = True

    def path(self, node: fx.Node) -> str:
        """The submodule whose forward runs the node; "" for the module itself."""
        stack = node.meta.get("nn_module_stack") or {}
        paths = [str(path) for path, _ in stack.values()]
        return paths[-1] if paths else ""

    def place(self, node: fx.Node) -> SourceLine | None:
        """The user's line that made the node; where PyTorch knows none, the forward that did."""
        found = of_trace(node.meta.get("stack_trace")) or _of_part(node)
        path = self.path(node)
        while found is None and path:
            found = forward_of(self.module.get_submodule(path))
            path = path.rpartition(".")[0]
        return found or forward_of(self.module)


def _of_part(node: fx.Node) -> SourceLine | None:
    """The first line of the graph that a node runs as a whole."""
    root = node.graph.owning_module
    for each in node.all_input_nodes:
        if each.op == "get_attr" and root is not None:
            part = getattr(root, str(each.target), None)
            nodes = part.graph.nodes if isinstance(part, fx.GraphModule) else ()
            return next((place for inner in nodes if (place := of_trace(inner.meta.get("stack_trace")))), None)
    return None


def trace(module: nn.Module, inputs: Sequence[Tensor], training: bool, images: int = 0) -> Trace:
    """The module's graph in training or evaluation. Its mode and state stay as they are. images: the dimensions of
    positions that inputs have where there is no convolution. Raises SpecError."""
    dynamic = _dynamic(inputs)
    with _mode(module, training), constant_momentum(module), _quiet():
        try:
            exported = torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic, strict=False)
            if _fix_shared_channels(exported, dynamic, images):
                exported = torch.export.export(module, tuple(inputs), dynamic_shapes=dynamic, strict=False)
        except Exception as error:
            raise _untraceable(error) from None
    _write_numbers(exported)
    write_out(exported.graph, aten.WRITTEN_OUT)
    leaves = {}
    specs = {each.arg.name: each for each in exported.graph_signature.input_specs}
    for node in exported.graph.find_nodes(op="placeholder"):
        each = specs[node.name]
        leaves[node] = Leaf(_KINDS.get(each.kind, "constant"), each.target or node.name)
    sizes = {leaf.name: node.meta["val"].shape for node, leaf in leaves.items() if leaf.kind == "input"}
    convolution = _convolution(exported.graph)
    spatial = int(aten.names(convolution.target)[1][-2]) if convolution else images
    first = next(iter(sizes.values()), ())
    if convolution and len(first) != spatial + 2:
        message = f"the module has a convolution, and the first example input has the shape {list(inputs[0].shape)}"
        place = of_trace(convolution.meta.get("stack_trace"))
        raise refusal("FG707", message, place, "a chain with one is of [batch, channels, positions]")
    for_all = check_conditions(exported, sizes, spatial)
    (output,) = exported.graph.find_nodes(op="output")
    results = output.args[0]
    form = exported.call_spec.out_spec
    several = form.type in (tuple, list) and form.num_children == form.num_leaves
    if not all(isinstance(each, fx.Node) for each in results) or not results or not (form.is_leaf() or several):
        raise refusal("FG705", "forward returns something else than tensors", forward_of(module), _RESULTS)
    nodes = tuple(node for node in exported.graph.nodes if node.op not in ("placeholder", "output"))
    return Trace(module, training, nodes, leaves, tuple(results), several, for_all)


def _write_numbers(exported: torch.export.ExportedProgram) -> None:
    """Gives tensors of one number that forward makes, as `torch.tensor(0.5)`, as what makes them of that number."""
    for node in exported.graph.find_nodes(op="call_function", target=torch.ops.aten.lift_fresh_copy.default):
        name = exported.graph_signature.inputs_to_lifted_tensor_constants.get(str(node.args[0]), "")
        tensor = exported.constants.get(name)
        if isinstance(tensor, Tensor) and tensor.numel() == 1:
            # Of a float32 the number that it was made of.
            number = float(str(tensor.numpy().flatten()[0])) if tensor.dtype == torch.float32 else tensor.item()
            node.target, node.args = torch.ops.aten.full.default, (list(tensor.shape), number)


def _dynamic(inputs: Sequence[Tensor]) -> tuple[dict[int, Any], ...]:
    """Every size that can be. The rows of numbers of channels are those of the first input: PyTorch asks before it
    knows."""
    found = tuple(dict.fromkeys(range(x.dim()), torch.export.Dim.AUTO) for x in inputs)
    first = inputs[0]
    for x, dims in zip(inputs, found, strict=True):
        if x.dtype == torch.int64 and x.dim() == first.dim() - 1 and x.shape == first.shape[:-1]:
            for dim in range(x.dim()):
                found[0][dim] = dims[dim] = torch.export.Dim(f"rows_{dim}")
    return found


def _fix_shared_channels(
    exported: torch.export.ExportedProgram, dynamic: Sequence[dict[int, Any]], images: int
) -> bool:
    """Makes numbers of the channels of inputs where the module has a number of all together, as behind cat, or divides
    these into parts, and says whether there are such."""
    at = 1 if images or _convolution(exported.graph) else -1
    specs = exported.graph_signature.input_specs
    names = {each.arg.name for each in specs if each.kind == InputKind.USER_INPUT}
    inputs = [node.meta["val"] for node in exported.graph.find_nodes(op="placeholder") if node.name in names]
    widths: list[Any] = [x.shape[at] if x.dim() > 1 else 1 for x in inputs]
    symbols = [each.node.expr for each in widths if isinstance(each, torch.SymInt)]
    shared = {name for each in symbols if each.is_Add for name in each.free_symbols}
    for node in exported.graph.nodes:
        if aten.find(aten.PARTS, node.target) is not None:
            width = node.args[0].meta["val"].shape[at]
            shared |= width.node.expr.free_symbols if isinstance(width, torch.SymInt) else set()
    for dims, size in zip(dynamic, widths, strict=True):
        if isinstance(size, torch.SymInt) and shared & size.node.expr.free_symbols:
            dims[at % len(dims)] = torch.export.Dim.STATIC
    return bool(shared)


def _convolution(graph: fx.Graph) -> fx.Node | None:
    """The first one of a graph."""
    return next((node for node in graph.nodes if aten.names(node.target)[1] in aten.CONVOLUTIONS), None)


def _untraceable(error: Exception) -> Exception:
    name, where = type(error).__name__, of_error(error)
    if "DataDependent" in name or "data-dependent" in str(error):
        return refusal("FG702", _DATA_DEPENDENT, where, _NO_FLOW)
    text = str(error).strip().splitlines() or [""]
    return refusal("FG701", f"torch.export cannot trace the module: {name}: {text[0][:200]}", where)


def forward_of(module: nn.Module) -> SourceLine | None:
    """Where a module's forward begins, if it is the user's."""
    code = getattr(type(module).forward, "__code__", None)
    return SourceLine(code.co_filename, code.co_firstlineno) if code and is_theirs(code.co_filename) else None


@contextmanager
def _mode(module: nn.Module, training: bool) -> Iterator[None]:
    """The whole module in one mode, and each part back in its own behind."""
    before = [(part, part.training) for part in module.modules()]
    module.train(training)
    try:
        yield
    finally:
        for part, mode in before:
            part.training = mode


@contextmanager
def constant_momentum(module: nn.Module) -> Iterator[None]:
    """A batch norm that averages over all batches reads its count of them, which no graph can: what it does is known
    without that."""
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._NormBase) and m.momentum is None]
    for norm in norms:
        norm.momentum = 0.1
    try:
        yield
    finally:
        for norm in norms:
            norm.momentum = None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the graphs that torch.export logs where it fails: the refusal says what matters."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
