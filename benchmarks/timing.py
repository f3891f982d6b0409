"""Timers: medians of device events for large shapes, wall clock around a synchronised loop for small ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

_FLUSH_BYTES = 256 << 20  # larger than any L2
_flush: list[torch.Tensor] = []


def device_milliseconds(work: Callable[[], Any], *, budget_ms: float = 80.0) -> float:
    """The median over as many runs as fit the budget (5 to 100), each from a flushed L2."""
    if not torch.cuda.is_available():
        return _host_milliseconds(work)
    for _ in range(3):
        work()
    once = _events(work, 2)
    estimate = max(statistics.median(once), 1e-3)
    _events(work, int(min(max(budget_ms / 4 / estimate, 1), 20)))  # clocks settle
    return statistics.median(_events(work, int(min(max(budget_ms / estimate, 5), 100))))


def _events(work: Callable[[], Any], repetitions: int) -> list[float]:
    if not _flush:
        _flush.append(torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda"))
    pairs = []
    for _ in range(repetitions):
        _flush[0].zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in pairs]


def _host_milliseconds(work: Callable[[], Any]) -> float:
    work()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def wall_microseconds(work: Callable[[], Any], *, calls: int = 200, rounds: int = 5) -> float:
    """The time per call of a loop that is synchronised only at its ends: what a host-bound caller sees."""
    synchronise = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    for _ in range(20):
        work()
    results = []
    for _ in range(rounds):
        synchronise()
        began = time.perf_counter()
        for _ in range(calls):
            work()
        synchronise()
        results.append(1e6 * (time.perf_counter() - began) / calls)
    return statistics.median(results)
