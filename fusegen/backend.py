"""fusegen as a backend of torch.compile: `torch.compile(model, backend="fusegen")`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import fx, nn
from torch.export import ExportedProgram

from fusegen.capture.exported import with_ops
from fusegen.capture.inductor import announce_ops
from fusegen.capture.layouts import in_channels_last
from fusegen.capture.linear_losses import Chunk
from fusegen.capture.lower import NotLowered, lower
from fusegen.capture.measure import Measurements
from fusegen.capture.packages import SPECS, Build, Packages
from fusegen.capture.products import Precision
from fusegen.capture.report import Report
from fusegen.capture.rewrite import Wanted, left_whole, rewrite
from fusegen.capture.worth import Choose
from fusegen.paths import DEFAULT_FUSED

Rest = Literal["inductor", "eager"]
Compiled = Callable[..., Any]

_CHOICES = ("build", "rest", "choose", "precision", "loss_chunk")
_backends: dict[tuple[str, ...], Backend] = {}  # by name: a model has many graphs, and one report

_log = logging.getLogger("fusegen")


class Backend:
    """A backend of torch.compile that runs chains of operators as kernels of fusegen, and the rest as `rest` does.

    directory: has, or gets, `specs/<name>.yaml` and `generated/<name>/`, to be committed. build: "now" writes what is
    not there, and compiles it where there is a GPU; "never" takes the packages that are there. rest: "inductor" or
    "eager". choose: "faster" takes chains whose kernels are expected to be, "measure" those that are on the GPU at
    hand, "all" takes each. precision: how linear layers multiply float32: "ieee" is PyTorch's way, and "fp32_split"
    takes pieces of fp16 on tensor cores, as accurate as float32. loss_chunk: so many rows of a linear layer's result
    are in memory at a time where that goes into a cross entropy alone, "auto" for what fits in 256 MiB; None: all of
    them. A step then takes some percent longer, and its memory is less by the logits and their gradient. options: those
    of torch._inductor.config, for the rest. `report` tells what became of the graphs so far.
    """

    def __init__(
        self,
        directory: str | Path = DEFAULT_FUSED,
        *,
        build: Build = "now",
        rest: Rest = "inductor",
        choose: Choose = "faster",
        precision: Precision = "ieee",
        loss_chunk: Chunk = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not (loss_chunk in (None, "auto") or (type(loss_chunk) is int and loss_chunk > 0)):
            raise ValueError(f"loss_chunk must be 'auto', a number of rows, or None, got {loss_chunk!r}")
        for name, value, kind in zip(
            _CHOICES[:-1], (build, rest, choose, precision), (Build, Rest, Choose, Precision), strict=True
        ):
            known = get_args(kind)
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        self.packages = Packages(Path(directory), build)
        self.rest, self.options = rest, _options(None, options)
        self.wanted = Wanted(choose, precision, loss_chunk)
        self.report = Report(Path(directory) / SPECS)
        self._measurements = Measurements(self.packages, self._alone, self._compiler)

    def __deepcopy__(self, _: dict[int, Any]) -> Backend:
        """Copies of a compiled model, such as averages of its weights, have the same packages and report."""
        return self

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Compiled:
        """What torch.compile runs in the place of a graph. Raises SpecError and BuildError."""
        self.report.graphs += 1
        module = self._rewritten(module, self.rest == "inductor")
        return self._compiled(module, inputs, self.options)

    def export(self, program: ExportedProgram) -> ExportedProgram:
        """A program of torch.export with kernels, for inference: it calls the ops of packages, which have to be loaded
        where it runs. The program itself where no chain is taken. Raises SpecError and BuildError."""
        self.report.graphs += 1
        try:
            made = with_ops(program, self._rewritten)
        except NotLowered as why:
            self.report.left.append(left_whole(program.graph_module, why))
            return program
        if made is not program:
            announce_ops()
        return made

    def _compiled(self, module: fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any]) -> Compiled:
        """What runs a graph, by `rest`."""
        if self.rest == "eager":
            from torch._dynamo.backends.debugging import aot_eager

            return aot_eager(module, list(inputs))
        from torch._inductor.compile_fx import compile_fx

        announce_ops()
        return compile_fx(module, inputs, config_patches=dict(options) or None)  # type: ignore[return-value]

    def _alone(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        """What runs a region that is measured: without CUDA graphs, which belong to a thread."""
        return self._compiled(module, inputs, {**self.options, "triton.cudagraphs": False})

    def _compiler(self) -> str:
        """What _alone() compiles by, for people."""
        options = [] if self.rest == "eager" else [f"{name}={value}" for name, value in self.options.items()]
        return " ".join([self.rest, *options])

    def _rewritten(self, module: fx.GraphModule, by_inductor: bool = False) -> fx.GraphModule:
        """The graph with calls of packages; as it was where it cannot be lowered. by_inductor: whether that runs it."""
        try:
            lowered = lower(module)
        except NotLowered as why:
            self.report.left.append(left_whole(module, why))
            if why.__cause__ is not None:
                _log.warning("a graph is left to PyTorch's compiler: %s", why)
            return module
        wanted = replace(self.wanted, inductor=self.options if self.rest == "inductor" else None)
        if by_inductor:
            lowered = in_channels_last(lowered, self.options)
        rewrite(lowered, self.packages, self.report, wanted, self._measurements)
        _log.info("%s", self.report)
        return lowered


def compile(
    model: nn.Module,
    *,
    directory: str | Path = DEFAULT_FUSED,
    build: Build = "now",
    rest: Rest = "inductor",
    choose: Choose = "faster",
    precision: Precision = "ieee",
    loss_chunk: Chunk = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
) -> Any:
    """torch.compile(model) with a Backend, which has the same arguments.

    mode: Inductor's, such as "reduce-overhead". dynamic, fullgraph: torch.compile's.
    """
    inductor = _options(mode, options)
    backend = Backend(
        directory, build=build, rest=rest, choose=choose, precision=precision, loss_chunk=loss_chunk, options=inductor
    )
    return torch.compile(model, backend=backend, dynamic=dynamic, fullgraph=fullgraph)


def compile_graph(
    module: fx.GraphModule, inputs: Sequence[Any], *, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Compiled:
    """What `backend="fusegen"` names. options: Backend's, and Inductor's under their own names."""
    given = dict(options or {})
    own = {key: given.pop(key) for key in ("directory", *_CHOICES) if key in given}
    key = (str(Path(own.get("directory", DEFAULT_FUSED)).resolve()), *(str(own.get(name, "")) for name in _CHOICES))
    backend = _backends.get(key)
    if backend is None:
        backend = _backends[key] = Backend(**own)
    backend.options = _options(mode, given)
    return backend(module, inputs)


def _options(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Inductor's configuration of a mode, with options that go before it. Raises ValueError for an unknown name."""
    found: dict[str, Any] = {}
    unknown = sorted(set(options or ()) - set(torch._inductor.list_options()))
    if unknown:
        known = ", ".join(("directory", *_CHOICES))
        raise ValueError(
            f"no option is called {', '.join(unknown)}: fusegen has {known}, and torch._inductor.config more"
        )
    if mode not in (None, "default"):
        found |= torch._inductor.list_mode_options(mode)
    return found | dict(options or {})
