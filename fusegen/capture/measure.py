"""What a region takes by kernels and by PyTorch's compiler, measured on the GPU at hand, and kept in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch._functorch import config as functorch
from torch._guards import tracing
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

from fusegen.bench.clock import CudaClock
from fusegen.bench.rounds import measure
from fusegen.bench.work import Work
from fusegen.build.progress import shown
from fusegen.capture.call import Call
from fusegen.capture.packages import Packages
from fusegen.capture.partition import Region
from fusegen.files import parse_json, write
from fusegen.progress import tell

FILE = "measured.json"
# Of PyTorch's time: who gains less than a hundredth is not worth a package.
_GAIN = 0.99
_OURS, _THEIRS = "fusegen", "pytorch"

Compile = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


class NotMeasured(Exception):
    """Its text is why."""


@dataclass(frozen=True)
class Times:
    """Milliseconds of the device for the forward pass of a region, and the backward pass where it has one."""

    ours: float
    theirs: float

    @property
    def pays(self) -> bool:
        return self.ours < _GAIN * self.theirs

    def __str__(self) -> str:
        return f"its kernels take {self.ours:.3f} ms, and PyTorch's compiler {self.theirs:.3f} ms"


class Measurements:
    """Of the regions of a directory. Each kind of region is measured once, for each of its sizes: an entry is known by
    the op, whose name has the digest of its sources, the tensors, the GPU and the version of PyTorch."""

    def __init__(self, packages: Packages, compile: Compile) -> None:
        """compile: what the rest of a graph is compiled by."""
        self._packages, self._compile = packages, compile
        self._known: dict[str, Times] = {}

    def times(self, region: Region, call: Call, nodes: Sequence[fx.Node], trained: Collection[fx.Node]) -> Times:
        """nodes: what the call takes. trained: what with_gradients() returns for the graph. Raises NotMeasured."""
        taken = _taken(region, nodes)
        key = _key(call, [_text(node, node in trained) for node in taken])
        if key not in self._known:
            with self._packages.locked(), shown():  # all processes of a distributed run have one answer
                self._known |= self._read()
                if key not in self._known:
                    tell(f"measuring {call.extra_repr()}")
                    self._known[key] = _Task(region, call, nodes, taken, trained, self._compile).result()
                    self._write()
        return self._known[key]

    @property
    def _path(self) -> Path:
        return self._packages.directory / FILE

    def _read(self) -> dict[str, Times]:
        """What is in the file; nothing where that is no file of this kind."""
        try:
            entries = parse_json(self._path.read_bytes()).items()
            return {key: Times(float(entry[_OURS]), float(entry[_THEIRS])) for key, entry in entries}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}

    def _write(self) -> None:
        if self._packages.build == "now":
            entries = {key: {_OURS: times.ours, _THEIRS: times.theirs} for key, times in self._known.items()}
            write(self._path, json.dumps(entries, indent=2, sort_keys=True) + "\n")


def _key(call: Call, tensors: Sequence[str]) -> str:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{call.op}({', '.join(tensors)}) on {gpu}, torch {torch.__version__}"


def _taken(region: Region, nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """The nodes outside that the region or its call take."""
    inside = set(region.nodes)
    found = dict.fromkeys(each for node in region.nodes for each in node.all_input_nodes if each not in inside)
    return list(found | dict.fromkeys(nodes))


def _text(node: fx.Node, is_trained: bool) -> str:
    value = _concrete(node)
    if not isinstance(value, Tensor):
        return str(value)
    order = "" if value.is_contiguous() else f" by {list(value.stride())}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{order}{' with gradient' * is_trained}"


def _concrete(node: fx.Node) -> Any:
    """What a node has in the call that was traced; of a tensor one without memory."""
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        return _number(value)
    sizes, strides = (tuple(map(_number, each)) for each in (value.shape, value.stride()))
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta")


def _number(value: Any) -> Any:
    """To know a symbol so adds no guard."""
    return int(value.node.hint) if isinstance(value, torch.SymInt) else value


def _autocast_of(region: Region, device: str) -> torch.autocast:
    """What holds where a region is in its graph."""
    entered: list[fx.Node] = []
    for node in region.nodes[0].graph.nodes:
        if node is region.nodes[0]:
            break
        if node.target is _enter_autocast and node.args[0] == device:
            entered.append(node)
        elif node.target is _exit_autocast and node.args[0] in entered:
            entered.remove(node.args[0])
    if entered:
        return torch.autocast(*entered[-1].args)  # type: ignore[arg-type]
    return torch.autocast(device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))


class _Task:
    """Measures a region while a graph is compiled, outside of the modes that hold there."""

    def __init__(
        self,
        region: Region,
        call: Call,
        nodes: Sequence[fx.Node],
        taken: Sequence[fx.Node],
        trained: Collection[fx.Node],
        compile: Compile,
    ) -> None:
        self._values = {node: _concrete(node) for node in taken}
        self._trained = [node in trained for node in taken]
        self._device = region.nodes[0].meta["val"].device
        self._autocast = _autocast_of(region, self._device.type)
        self._graphs = {_OURS: self._with_call(call, nodes), _THEIRS: self._with_nodes(region)}
        self._compile = compile
        self._dtypes = [node.meta["val"].dtype for node in region.results]

    def result(self) -> Times:
        """Raises NotMeasured."""
        devices = [self._device] if self._device.type == "cuda" else []
        # The backward pass runs in a thread of its own. To be compiled there, it would wait for the graph at hand.
        at_once = functorch.patch(force_non_lazy_backward_lowering=True)
        outside = tracing(None), unset_fake_temporarily(), torch.enable_grad(), self._autocast
        try:
            with ExitStack() as stack:
                for each in (torch.random.fork_rng(devices), at_once, *outside):
                    stack.enter_context(each)
                return self._measured()
        except Exception as error:  # of compilers, of the device
            first = str(error).partition("\n")[0]
            raise NotMeasured(f"it cannot be measured: {type(error).__name__}: {first}") from error

    def _measured(self) -> Times:
        given = zip(self._values.values(), self._trained, strict=True)
        inputs = [self._filled(value, is_trained) for value, is_trained in given]
        calls = {name: self._step(graph, inputs) for name, graph in self._graphs.items()}

        def failed(_: str, error: Exception) -> None:
            raise error

        found = measure(CudaClock(), {name: Work(call) for name, call in calls.items()}, failed)
        return Times(*(round(found[name].device.median, 4) for name in (_OURS, _THEIRS)))

    def _filled(self, value: Any, is_trained: bool) -> Any:
        """A tensor with values that every operator takes: positive, and in range as numbers of channels."""
        if not isinstance(value, Tensor):
            return value
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=self._device)
        if not made.is_floating_point():
            return made.zero_()
        return made.uniform_(0.5, 1.5).requires_grad_(is_trained)

    def _step(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[[], Any]:
        run = self._compile(graph, inputs)
        results = run(*inputs)
        if [each.dtype for each in results] != self._dtypes:
            raise RuntimeError("the autocast around it is not known")
        wanted = [each for each in inputs if isinstance(each, Tensor) and each.requires_grad]
        gradients = [torch.ones_like(each) for each in results if each.requires_grad]
        if not gradients:
            return lambda: run(*inputs)

        def step() -> Any:
            made = [each for each in run(*inputs) if each.requires_grad]
            return torch.autograd.grad(made, wanted, gradients, allow_unused=True)

        return step

    def _with_call(self, call: Call, nodes: Sequence[fx.Node]) -> fx.GraphModule:
        graph, holders = self._empty()
        result: Any = graph.call_module("call", tuple(holders[node] for node in nodes))
        graph.output((result,) if call.results == 1 else tuple(result[at] for at in range(call.results)))
        return fx.GraphModule({"call": call}, graph)

    def _with_nodes(self, region: Region) -> fx.GraphModule:
        graph, copies = self._empty()
        for node in region.nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in region.results))
        return fx.GraphModule({}, graph)

    def _empty(self) -> tuple[fx.Graph, dict[fx.Node, fx.Node]]:
        """A graph with inputs for what is taken."""
        graph = fx.Graph()
        return graph, {node: graph.placeholder(f"x{index}") for index, node in enumerate(self._values)}
