"""The clocks of a GPU: device events behind a delay, a synchronised loop, and the allocator's peak.

`Clock` is all that measuring needs of a device; tests have another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from fusegen.bench.work import Call

# Larger than any L2.
_FLUSH_BYTES = 256 << 20
# Covers what varies from call to call; far below it is hidden by the flush anyway.
_LEAST_DELAY_US = 20.0
_MOST_DELAY_US = 20_000.0
_CALIBRATION_CYCLES = 10_000_000


@dataclass(frozen=True)
class Machine:
    """What figures belong to: GPU, versions of torch and of its CUDA."""

    gpu: str
    torch: str
    cuda: str


class Clock(Protocol):
    """What a device can measure of a call."""

    machine: Machine

    def issue_us(self, call: Call) -> float:
        """Microseconds in which the host issues one call on an idle device."""

    def enqueue(self, call: Call, delay_us: float) -> Callable[[], float]:
        """Queue one call with a flushed L2. After `synchronise`, the result gives its device time in milliseconds."""

    def synchronise(self) -> None:
        """Wait for all that was queued."""

    def wall_us(self, call: Call, calls: int) -> float:
        """Microseconds per call of a loop that is synchronised at its ends only: what a caller sees."""

    def peak_bytes(self, call: Call) -> int:
        """The most that one call allocates at a time, beyond what was allocated before it."""


class CudaClock:
    """The current CUDA device. device: where the memory is that flushes the L2."""

    def __init__(self, device: str = "cuda") -> None:
        self.machine = Machine(torch.cuda.get_device_name(), torch.__version__, str(torch.version.cuda))
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device)
        self._cycles_per_us = self._calibrate()

    def issue_us(self, call: Call) -> float:
        self.synchronise()
        began = time.perf_counter()
        call()
        issued = time.perf_counter() - began
        self.synchronise()
        return issued * 1e6

    def enqueue(self, call: Call, delay_us: float) -> Callable[[], float]:
        # Written, not read: like any steady state this leaves an L2 full of modified lines, so that whoever comes next
        # pays for writing back as much as it leaves behind. After a read a copy would seem faster than the memory is.
        self._flush.zero_()
        # The device waits until the whole call is queued, so that launch latency is not taken for device time.
        torch.cuda._sleep(int(min(max(delay_us, _LEAST_DELAY_US), _MOST_DELAY_US) * self._cycles_per_us))
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        return lambda: begin.elapsed_time(end)

    def synchronise(self) -> None:
        torch.cuda.synchronize()

    def wall_us(self, call: Call, calls: int) -> float:
        self.synchronise()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        self.synchronise()
        return (time.perf_counter() - began) * 1e6 / calls

    def peak_bytes(self, call: Call) -> int:
        self.synchronise()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        self.synchronise()
        return torch.cuda.max_memory_allocated() - before

    def _calibrate(self) -> float:
        torch.cuda._sleep(_CALIBRATION_CYCLES)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(_CALIBRATION_CYCLES)
        end.record()
        self.synchronise()
        return _CALIBRATION_CYCLES / (begin.elapsed_time(end) * 1e3)
