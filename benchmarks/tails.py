"""The launchers of generated kernels, called with tensors and without a module: one program, any schedule.

`_C.so` hides its launchers, so that two packages do not see each other's; `compile_launchers` makes libraries that do
not. What a launcher takes follows from the plan.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fusegen.build.toolchain import find_toolchain
from fusegen.ir.extent import ALL
from fusegen.plan.model import Mode, Program, Variant
from fusegen.plan.model import Tensor as PlanTensor
from fusegen.plan.plan import Plan
from fusegen.render.cuda import symbol
from fusegen.verify.emulated import in_product
from fusegen.verify.sizes import Sizes

AUTOMATIC, ON_CHIP, SPLIT = "automatic", "on_chip", "split"
SCHEDULES = {AUTOMATIC: 0, ON_CHIP: 1, SPLIT: 2}
# cudaErrorInvalidConfiguration: what a launcher answers where the schedule that was asked for does not fit.
DOES_NOT_FIT = 9
# Of the largest and of each element: an ulp or two of the dtype, and some of a sum in float32.
LIMITS = {torch.float32: 2e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}
_PIECE = 1 << 27
_FLAGS = ("-O3", "-std=c++17", "-shared", "--threads=0", "--split-compile=0", "-Xcompiler", "-fPIC")


class TailError(Exception):
    """A launcher failed, or two schedules of one program have different results."""


class Launchers(Protocol):
    """The functions of one kernels.cu. Arguments are ctypes values."""

    def workspace(self, name: str, *arguments: Any) -> int:
        """Bytes of workspace that the launcher `name` needs."""

    def bind(self, name: str, *arguments: Any) -> Callable[[], int]:
        """A call of the launcher `name`, which returns a cudaError_t."""


class CompiledLaunchers:
    """Launchers of a library by `compile_launchers`."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(os.fspath(path))

    def workspace(self, name: str, *arguments: Any) -> int:
        function = self._library[f"{name}_workspace"]
        function.restype = ctypes.c_int64
        return function(*arguments)

    def bind(self, name: str, *arguments: Any) -> Callable[[], int]:
        function = self._library[name]
        return lambda: function(*arguments)


def compile_launchers(names: Sequence[str], generated: Path, cache: Path, target: str) -> dict[str, CompiledLaunchers]:
    """The kernels of several packages, compiled at the same time unless `cache` has them. target: such as sm_90."""
    nvcc = find_toolchain().nvcc.path
    support = b"".join(path.read_bytes() for path in sorted((generated / "support").iterdir()) if path.is_file())
    gencode = f"-gencode=arch={target.replace('sm', 'compute')},code={target}"

    def library(name: str) -> Path:
        source = generated / name / "kernels.cu"
        key = hashlib.sha256(repr((str(nvcc), _FLAGS, gencode)).encode() + support + source.read_bytes())
        found = cache / f"{name}-{key.hexdigest()[:16]}.so"
        if not found.exists():
            part = found.with_suffix(f".{os.getpid()}")
            subprocess.run([os.fspath(nvcc), *_FLAGS, gencode, "-o", os.fspath(part), os.fspath(source)], check=True)
            part.replace(found)
        return found

    cache.mkdir(parents=True, exist_ok=True)
    print(f"compiling {', '.join(names)} for {target}", file=sys.stderr, flush=True)
    with ThreadPoolExecutor() as pool:
        return dict(zip(names, map(CompiledLaunchers, pool.map(library, names)), strict=True))


@dataclass(frozen=True)
class Launch:
    """One program in one schedule, ready to be called again and again; it returns a cudaError_t."""

    call: Callable[[], int]
    workspace_bytes: int


class TailProgram:
    """One program with its tensors: what it reads, and where all its schedules write.

    bytes: the fewest it can move, each tensor that it reads or writes once; running statistics count as both.
    """

    def __init__(self, tail: Tail, program: Program) -> None:
        self.tail, self.program = tail, program
        self.updated = {t.name: tail.read(t) for t in program.outputs if t.name in tail.plan.chain.buffers}
        self.outputs = {t.name: tail.empty(t) for t in program.outputs}
        given = [t for t in program.inputs if not in_product(tail.plan, tail.mode, t.name)]
        self._inputs = {t.name: tail.read(t) for t in given if t.name not in self.outputs}
        everything = (*self._inputs.values(), *self.updated.values(), *self.outputs.values())
        self.bytes = sum(tensor.nbytes for tensor in everything)

    @property
    def schedules(self) -> tuple[str, ...]:
        """Those that can be asked for: `on_chip` may not fit, and a program may have one schedule only."""
        return tuple(SCHEDULES) if len(self.program.schedules) > 1 else (AUTOMATIC,)

    def reset(self) -> None:
        """Outputs become NaN, so that what no kernel writes shows; what is updated gets its value from before."""
        for name, tensor in self.outputs.items():
            tensor.copy_(self.updated[name]) if name in self.updated else tensor.fill_(torch.nan)

    def launch(self, schedule: str) -> Launch:
        """The arguments are as in generated/*/bindings.cpp; keeps alive what they point to."""
        tail, name = self.tail, symbol(self.tail.plan.spec.name, self.program)
        pointers = [_pointer(self._inputs.get(t.name)) for t in self.program.inputs if t.name not in self.outputs]
        pointers += [_pointer(tensor) for tensor in self.outputs.values()]
        groups = [] if self.program.groups is None else [tail.extent(self.program.groups)]
        sizes = [ctypes.c_int64(n) for n in (tail.rows, tail.channels, *groups, SCHEDULES[schedule])]
        mode = ctypes.c_int(tail.mode.index)
        bytes_ = tail.launchers.workspace(name, mode, *sizes)
        workspace = torch.empty(bytes_, dtype=torch.uint8, device=tail.device) if bytes_ else None
        constants = [ctypes.c_double(tail.constant(constant)) for constant in self.program.constants]
        stream = torch.cuda.current_stream().cuda_stream if tail.device == "cuda" else None
        call = tail.launchers.bind(
            name, mode, *pointers, *sizes, *constants, _pointer(workspace), ctypes.c_void_p(stream)
        )
        kept = (workspace, self.outputs, self._inputs)
        return Launch(lambda _=kept: call(), bytes_)


class Tail:
    """Tensors of one size for the programs of a chain, behind its contraction.

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
        status = forward.launch(AUTOMATIC).call()
        if status:
            raise TailError(f"{variant.forward.name} returned CUDA error {status}")
        kept = {t.name for t in variant.saved}
        self.tensors |= {name: tensor.clone() for name, tensor in forward.outputs.items() if name in kept}
        yield forward
        del forward
        yield TailProgram(self, variant.backward)

    def extent(self, dim: int | str) -> int:
        """The number that a spec's symbol stands for."""
        return dim if isinstance(dim, int) else self.sizes.symbols[dim]

    def read(self, tensor: PlanTensor) -> Tensor:
        """What the module owns, a statistic of the forward pass, or random data, drawn once."""
        if tensor.name not in self.tensors:
            chain = self.plan.chain
            owner: Mapping[str, Any] = chain.parameters if tensor.name in chain.parameters else chain.buffers
            if tensor.name in owner:
                value = attrgetter(owner[tensor.name].attribute)(self.module).detach().to(self._dtype(tensor))
            else:
                value = torch.randn(self._shape(tensor), dtype=self._dtype(tensor), device=self.device)
            self.tensors[tensor.name] = value.contiguous()
        return self.tensors[tensor.name]

    def empty(self, tensor: PlanTensor) -> Tensor:
        """Memory for a result."""
        return torch.empty(self._shape(tensor), dtype=self._dtype(tensor), device=self.device)

    def constant(self, name: str) -> float:
        """A constant of the module as it is passed: -1 stands for a cumulative average."""
        value = attrgetter(self.plan.chain.constants[name].attribute)(self.module)
        return -1.0 if value is None else float(value)

    def _dtype(self, tensor: PlanTensor) -> torch.dtype:
        fixed = {"count": torch.int64, "accumulator": torch.float32}
        return fixed.get(tensor.role) or getattr(torch, self.mode.roles[tensor.role])

    def _shape(self, tensor: PlanTensor) -> tuple[int, int]:
        blocks = tensor.extent.blocks
        return self.rows if tensor.extent.rows else 1, self.channels if blocks == ALL else self.extent(blocks)


def wrong(found: TailProgram, expected: Mapping[str, Tensor]) -> str | None:
    """Where the outputs are farther from `expected` than their dtype's rounding explains; None if nowhere.

    A gradient that is a sum over elements may be off by the rounding of as many terms.
    """
    for name, value in found.outputs.items():
        terms = found.tail.rows * found.tail.channels / value.numel() if name.startswith("grad_") else 1.0
        count = _outside(value.view(-1), expected[name].view(-1), LIMITS[value.dtype], terms)
        if count:
            return f"{count} of {value.numel()} elements of {name} differ"
    return None


def _outside(found: Tensor, expected: Tensor, limit: float, terms: float) -> int:
    """In pieces: full-size temporaries of the largest sizes would not fit."""
    pieces = list(zip(found.split(_PIECE), expected.split(_PIECE), strict=True))
    largest = torch.stack([piece.abs().amax().float() for _, piece in pieces]).max()
    bound = limit / 8 * (largest + 1) + 64 * torch.finfo(torch.float32).eps * terms**0.5
    # Negated, so that a NaN is outside.
    inside = [(a.float() - b.float()).abs() <= bound + limit * b.float().abs() for a, b in pieces]
    return found.numel() - int(torch.stack([piece.sum() for piece in inside]).sum())


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())
