"""The programs of a chain with tensors, called through their launchers and without a module, in any launch shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.errors import FusegenError
from fusegen.plan.launches.shapes import Shapes
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.gradient_aliases import is_written
from fusegen.plan.programs.model import Mode, Program, Variant
from fusegen.plan.programs.model import Tensor as PlanTensor
from fusegen.plan.sizes.bytes import samples_of
from fusegen.plan.sizes.chain_sizes import Sizes
from fusegen.render.programs.launchers_header import SAMPLE_ROWS
from fusegen.runtime.choice import Choice, choice
from fusegen.runtime.launchers import Call, Launcher
from fusegen.tune.launchers import Launchers
from fusegen.verify.subjects.emulated import constant, dtype_of, in_product, trailing_of


class TailError(FusegenError):
    """A launcher failed, or one program has different results in two shapes."""


_UNWRITTEN = 255, torch.nan  # what no kernel writes, in bytes and in numbers

# One program in one shape, ready to be called again and again; it returns a cudaError_t.
Launch = Callable[[], int]


class TailProgram:
    """One program with its tensors: what it reads, and where it writes in whatever shape.

    outputs: what it writes in this mode. bytes: the fewest it can move, each tensor that it reads or writes once;
    running statistics count as both.
    """

    def __init__(self, tail: Tail, program: Program) -> None:
        self.tail, self.program = tail, program
        self.updated = {t.name: tail.read(t) for t in program.made if t.name in tail.plan.chain.buffers}
        self.outputs = {t.name: tail.empty(t, program) for t in program.made if is_written(tail.mode, t)}
        given = [t for t in program.given if not in_product(tail.plan, tail.mode, t.name)]
        self._inputs = {t.name: tail.read(t) for t in given if t.name not in self.outputs}
        everything = (*self._inputs.values(), *self.updated.values(), *self.outputs.values())
        self.bytes = sum(tensor.nbytes for tensor in everything)

    def reset(self) -> None:
        """Outputs become NaN, so that what no kernel writes shows; what is updated gets its value from before."""
        for name, tensor in self.outputs.items():
            tensor.copy_(self.updated[name]) if name in self.updated else tensor.fill_(
                _UNWRITTEN[tensor.is_floating_point()]
            )

    def launch(self, shapes: Shapes | None = None) -> Launch:
        """Keeps alive what the arguments point to. None: as the launcher chooses."""
        tail, launcher = self.tail, Launcher(self.tail.plan, self.program)
        call = self.call(shapes)
        bytes_ = tail.launchers.workspace(launcher.symbol, call)
        workspace = torch.empty(bytes_, dtype=torch.uint8, device=tail.device) if bytes_ else None
        stream = torch.cuda.current_stream().cuda_stream if tail.device == "cuda" else None
        tensors = {**self._inputs, **self.outputs}
        arguments = launcher.arguments(
            {name: _address(tensors.get(name)) for name in launcher.tensors},
            {name: constant(tail.plan, tail.module, tail.mode, name) for name in self.program.constants}
            | {SAMPLE_ROWS: 1},
            tail.rows,
        )
        call = replace(call, workspace=_address(workspace), stream=stream)
        run = tail.launchers.bind(launcher.symbol, call, arguments)

        def launch(_owners: object = (workspace, tensors)) -> int:
            return run()

        return launch

    def choice(self, shapes: Shapes | None = None) -> Choice:
        """What the launcher says that it runs in these shapes. None: as it chooses."""
        symbol = Launcher(self.tail.plan, self.program).symbol
        return choice(self.tail.launchers.explain(symbol, self.call(shapes)))

    def call(self, shapes: Shapes | None = None) -> Call:
        """The sizes of a call in these shapes."""
        tail = self.tail
        samples = samples_of(tail.plan, self.program, tail.sizes.symbols)
        return Call(tail.mode.index, tail.rows, tail.channels, tail.sizes.groups(self.program), shapes, samples=samples)


class Tail:
    """Tensors of one size for the programs of a chain, after its contraction.

    module: an instance of the generated class on `device`, whose parameters, buffers and constants are used.
    """

    def __init__(
        self, plan: Plan, mode: Mode, sizes: Sizes, launchers: Launchers, module: nn.Module, device: str
    ) -> None:
        self.plan, self.mode, self.sizes, self.launchers = plan, mode, sizes, launchers
        self.module, self.device = module, device
        self.rows, self.channels = sizes.rows, sizes.channels
        self.tensors: dict[str, Tensor] = {}

    def programs(self, variant: Variant) -> Iterator[TailProgram]:
        """Forward and backward. The latter reads the statistics that the former leaves.

        Who lets go of the first before asking for the second never has the memory of both.
        """
        forward = TailProgram(self, variant.forward)
        forward.reset()
        status = forward.launch()()
        if status:
            raise TailError(f"{variant.forward.name} returned CUDA error {status}")
        saved = {t.name for t in variant.saved}
        self.tensors |= {name: tensor.clone() for name, tensor in forward.outputs.items() if name in saved}
        yield forward
        del forward
        yield TailProgram(self, variant.backward)

    def read(self, tensor: PlanTensor) -> Tensor:
        """What the module owns, a statistic of the forward pass, or random data, drawn once."""
        if tensor.name not in self.tensors:
            chain = self.plan.chain
            owner: Mapping[str, Any] = chain.parameters if tensor.name in chain.parameters else chain.buffers
            if tensor.name in owner:
                value = attrgetter(owner[tensor.name].attribute)(self.module).detach().to(dtype_of(self.mode, tensor))
                if getattr(owner[tensor.name], "repeated", False):
                    value = value.repeat(self.channels // value.numel())
                if getattr(owner[tensor.name], "trailing", False):
                    sizes = trailing_of(self.plan, self.module)
                    value = value.reshape(value.shape[-len(sizes) :]).expand(sizes).flatten()
            elif tensor.role == "index":
                shape = self.sizes.shape(tensor.axes)
                value = torch.randint(self.channels, shape, dtype=torch.int64, device=self.device)
            elif tensor.role == "seed":
                value = torch.tensor(0x123456789ABCDEF, device=self.device)
            else:
                # What has fewer rows gets as many as there are: launchers are told so.
                value = torch.randn(self._shape(tensor), device=self.device)
                value = value < 0 if tensor.role == "mask" else value.to(dtype_of(self.mode, tensor))
            self.tensors[tensor.name] = value.contiguous()
        return self.tensors[tensor.name]

    def _shape(self, tensor: PlanTensor) -> tuple[int, int]:
        rows, channels = self.sizes.shape(tensor.axes)
        return rows, tensor.parts * channels if "C" in tensor.axes else channels

    def empty(self, tensor: PlanTensor, program: Program) -> Tensor:
        """Memory for a result. A sum of samples has as many rows as there are of these."""
        shape = self._shape(tensor)
        if tensor.samples:
            shape = samples_of(self.plan, program, self.sizes.symbols), shape[1]
        return torch.empty(shape, dtype=dtype_of(self.mode, tensor), device=self.device)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
