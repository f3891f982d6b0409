"""The GPU at hand, as tuning needs it. Tests put another device in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fusegen.bench.clock import Clock, CudaClock
from fusegen.errors import Diagnostic, SpecError
from fusegen.tune.launchers import Launchers, compile_launchers


@dataclass(frozen=True)
class Device:
    """target: such as sm_90. name: what torch calls it. clock: has the GPU's name and the versions.

    launchers: makes the launchers of packages, by name, from the directory that holds them.
    """

    target: str
    name: str
    clock: Clock
    launchers: Callable[[Sequence[str], Path], Mapping[str, Launchers]]


def require_cuda() -> None:
    """Raises SpecError where torch finds no CUDA device."""
    if not torch.cuda.is_available():
        hint = "a tuning that is committed needs none to be used"
        raise SpecError([Diagnostic("FG503", "torch finds no CUDA device to measure on", hint=hint)])


def current_target() -> str:
    """The compute capability of the current CUDA device."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def cuda_device() -> Device:
    """The current CUDA device. Compiling needs nvcc."""
    target = current_target()

    def launchers(names: Sequence[str], packages: Path) -> Mapping[str, Launchers]:
        return compile_launchers(names, packages, packages / ".launchers", target)

    return Device(target, "cuda", CudaClock(), launchers)
