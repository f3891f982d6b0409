"""What this GPU can do at best: bytes per second of a large copy, operations per second of a large matrix product."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import matmul
from typing import Any

import torch

from fusegen.bench.clock import Clock
from fusegen.bench.names import PRECISIONS, Precision
from fusegen.bench.rounds import Spread
from fusegen.bench.work import Call, copy_work

_COPIED_BYTES = 2 << 30
_EXTENT = 8192
_SAMPLES = 12


@dataclass(frozen=True)
class Ceilings:
    """copy: GB/s, reads and writes together. contraction: TFLOP/s by precision. Medians."""

    copy: float
    contraction: Mapping[str, float] = field(default_factory=dict)


def measure_ceilings(
    clock: Clock, device: str, precisions: Sequence[str], *, copied: int = _COPIED_BYTES, extent: int = _EXTENT
) -> Ceilings:
    """A copy that moves `copied` bytes, and square products of `extent` in each precision that the library has."""
    copy = copied / (_median_ms(clock, copy_work([copied], device).call) * 1e-3) / 1e9
    found = {}
    for name in precisions:
        precision = PRECISIONS[name]
        if precision.product != "ieee":
            continue  # no product of the library's
        left, right = (
            torch.randn(extent, extent, device=device, dtype=getattr(torch, precision.dtype)) for _ in range(2)
        )
        with matmul_settings(precision):
            seconds = _median_ms(clock, partial(matmul, left, right)) * 1e-3
        found[name] = 2 * extent**3 / seconds / 1e12
    return Ceilings(copy, found)


@contextlib.contextmanager
def matmul_settings(precision: Precision) -> Iterator[None]:
    """Products and convolutions as `precision` has them, in every thread; what was set before is put back."""
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = precision.tf32
    try:
        yield
    finally:
        for backend, allowed in zip(backends, before, strict=True):
            backend.allow_tf32 = allowed


def _median_ms(clock: Clock, call: Call) -> float:
    call()
    waiting = [clock.enqueue(call, 0.0) for _ in range(_SAMPLES)]
    clock.synchronise()
    return Spread.of([milliseconds() for milliseconds in waiting][2:]).median
