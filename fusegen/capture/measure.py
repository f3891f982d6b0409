"""What a region takes by kernels and by PyTorch's compiler, measured on the GPU at hand, and kept in a file."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch._functorch import config as functorch
from torch._guards import tracing
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

from fusegen.aten.nodes import known
from fusegen.bench.clock import CudaClock
from fusegen.bench.rounds import device_times
from fusegen.build.progress import shown
from fusegen.capture.call import Call
from fusegen.capture.chain import name_of
from fusegen.capture.packages import Packages
from fusegen.capture.partition import Region
from fusegen.files import parse_json, write, writing
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
        return f"its kernels take {self.ours:.3f} ms, and PyTorch's {self.theirs:.3f} ms"


class Measurements:
    """Of the regions of a directory. Each kind of region is measured once, for each of its sizes: an entry is known by
    the op, whose name has the digest of its sources, the tensors, what it is compared with, the GPU and the version of
    PyTorch."""

    def __init__(self, packages: Packages, compile: Compile, compiler: Callable[[], str]) -> None:
        """compile: what the rest of a graph is compiled by. compiler: returns the name of that."""
        self._packages, self._compile, self._compiler = packages, compile, compiler
        self._known: dict[str, Times | str] = {}  # or why there are none, in this process

    def times(self, region: Region, call: Call, nodes: Sequence[fx.Node], trained: Collection[fx.Node]) -> Times:
        """nodes: what the call takes. trained: those of the graph through which a backward pass runs. Raises
        NotMeasured, and SpecError where the file cannot be written."""
        task = _Task(region, call, nodes, trained, self._compile)
        products = f"float32 products {torch.get_float32_matmul_precision()}"
        key = f"{task} beside {self._compiler()}, {products}, on {_gpu(task.device)}, torch {torch.__version__}"
        if key not in self._known:
            with self._packages.locked(), shown():  # all processes of a distributed run have one answer
                self._known |= self._read()
                if key not in self._known:
                    tell(f"measuring {call.extra_repr()}")
                    self._known[key] = task.result()
                    self._write()
        times = self._known[key]
        if isinstance(times, str):
            raise NotMeasured(times)
        return times

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
            entries = {
                key: {_OURS: times.ours, _THEIRS: times.theirs}
                for key, times in self._known.items()
                if isinstance(times, Times)
            }
            with writing(self._path):
                write(self._path, json.dumps(entries, indent=2, sort_keys=True) + "\n")


def _gpu(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@dataclass(frozen=True)
class _Operand:
    """What a region takes in the call that was traced. value: a number, or a tensor without memory."""

    value: Any
    is_trained: bool

    @classmethod
    def of(cls, node: fx.Node, is_trained: bool) -> _Operand:
        value = node.meta["val"]
        if not isinstance(value, Tensor):
            return cls(_number(value), False)
        sizes, strides = (tuple(map(_number, each)) for each in (value.shape, value.stride()))
        return cls(torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta"), is_trained)

    def __str__(self) -> str:
        if not isinstance(self.value, Tensor):
            return str(self.value)
        order = "" if self.value.is_contiguous() else f" by {list(self.value.stride())}"
        return f"{name_of(self.value.dtype)}{list(self.value.shape)}{order}{' with gradient' * self.is_trained}"

    def filled(self, device: torch.device) -> Any:
        """With values that every operator takes: positive, and in range as numbers of channels."""
        value = self.value
        if not isinstance(value, Tensor):
            return value
        reach = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
        memory = torch.zeros(max(1 + reach, 0), dtype=value.dtype, device=device)
        if memory.is_floating_point():
            memory.uniform_(0.5, 1.5)
        return memory.as_strided(value.shape, value.stride()).requires_grad_(self.is_trained)


def _number(value: Any) -> Any:
    """Raises NotMeasured for a size that depends on values."""
    if not isinstance(value, torch.SymInt):
        return value
    size = known(value)
    if size is None:
        raise NotMeasured("it cannot be measured: its sizes depend on values")
    return size


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
    """Measures a region while a graph is compiled, outside of the modes that hold there. Its text is what is measured.

    Raises NotMeasured.
    """

    def __init__(
        self, region: Region, call: Call, nodes: Sequence[fx.Node], trained: Collection[fx.Node], compile: Compile
    ) -> None:
        inside = set(region.nodes)
        outside = [each for node in region.nodes for each in node.all_input_nodes if each not in inside]
        has_backward = any(node in trained for node in region.nodes)
        self._operands = {
            node: _Operand.of(node, has_backward and node in trained) for node in dict.fromkeys((*outside, *nodes))
        }
        self.device = region.nodes[0].meta["val"].device
        self._op, self._dtypes = call.op, [node.meta["val"].dtype for node in region.results]
        self._autocast = _autocast_of(region, self.device.type)
        self._graphs = {_OURS: self._with_call(call, nodes), _THEIRS: self._with_nodes(region)}
        self._compile = compile

    def __str__(self) -> str:
        return f"{self._op}({', '.join(map(str, self._operands.values()))}) -> {', '.join(map(name_of, self._dtypes))}"

    def result(self) -> Times | str:
        """What was measured, or why nothing was."""
        try:
            with self._alone():
                return self._measured()
        except Exception as error:  # of compilers, of the device
            first = str(error).partition("\n")[0]
            return f"it cannot be measured: {type(error).__name__}: {first}"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Without what holds where a graph is compiled, under the autocast that holds for the region."""
        is_cuda = self.device.type == "cuda"
        with (
            torch.cuda.device(self.device) if is_cuda else nullcontext(),
            torch.random.fork_rng([self.device] if is_cuda else []),
            # The backward pass runs in a thread of its own. To be compiled there, it would wait for the graph at hand.
            functorch.patch(force_non_lazy_backward_lowering=True),
            tracing(None),
            unset_fake_temporarily(),
            torch.enable_grad(),
            self._autocast,
        ):
            yield

    def _measured(self) -> Times:
        inputs = [each.filled(self.device) for each in self._operands.values()]
        times = device_times(CudaClock(), {name: self._step(graph, inputs) for name, graph in self._graphs.items()})
        return Times(*(round(times[name], 4) for name in (_OURS, _THEIRS)))

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
        result = graph.call_module("call", tuple(holders[node] for node in nodes))
        several = range(call.results) if call.results > 1 else ()
        graph.output(tuple(graph.call_function(operator.getitem, (result, at)) for at in several) or (result,))
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
        return graph, {node: graph.placeholder(f"x{index}") for index, node in enumerate(self._operands)}
