"""Takes samples in rounds: every subject once, then every subject again.

A GPU's clocks move with its power and its temperature, by 5 to 15 % over a run. Subjects that are measured one after
another see different clocks; in rounds all of them see the same. So everything is warmed up first, and what is
subtracted or divided later - the contraction alone, the copy - takes part in the rounds.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from fusegen.bench.clock import Clock
from fusegen.bench.work import Call, Work

WARM_UP = 4
# Rounds at the start in which the clocks settle, as many as this takes, within limits; their samples are dropped.
_SETTLING_MS = 50.0
_LEAST_SETTLING, _MOST_SETTLING = 2, 20
# Samples of a subject: as many as the slowest one can take in this time, within limits.
_DEVICE_BUDGET_MS = 300.0
_LEAST_SAMPLES, _MOST_SAMPLES = 10, 60
# A wall loop is long enough that neither its two synchronisations count nor what another subject has left in the caches
# and the host's threads asleep; a quarter of it goes before, untimed. Loops of some ten calls of small shapes took up
# to half as long again, and their quartiles were as far apart.
_LOOP_US = 40_000.0
_MOST_CALLS = 1000
_ESTIMATING_CALLS = 5
WALL_ROUNDS = 7
# The host's time varies; the delay in front of a sample must cover its worst.
_DELAY_FACTOR = 2.0


@dataclass(frozen=True)
class Spread:
    """The median of some samples, the quartiles, and how many they were."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """samples: at least one."""
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0], 1)
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, low, high, len(samples))


@dataclass(frozen=True)
class Measured:
    """device: milliseconds of a call. wall: microseconds of a call. peak: bytes, None where CUDA graphs hold them."""

    device: Spread
    wall: Spread
    peak: int | None


Failed = Callable[[str, Exception], None]
_Attempt = Callable[[str, Callable[[], Any]], Any]


def measure(clock: Clock, works: Mapping[str, Work], failed: Failed) -> dict[str, Measured]:
    """What each subject takes, by its name. A subject that raises is handed to `failed` and left out of all that
    follows."""
    running = dict(works)

    def attempt(name: str, what: Callable[[], Any]) -> Any:
        """The result, or None after an exception."""
        try:
            return what()
        except Exception as problem:  # whatever a subject may raise
            failed(name, problem)
            running.pop(name, None)
            return None

    delays = _warmed_up(clock, works, running, attempt)
    with _uncollected():
        device = _device_rounds(clock, works, running, delays, attempt)
        wall = _wall_rounds(clock, works, running, attempt)
    found = {}
    for name in list(running):
        work = works[name]
        peak = None if work.graphs else attempt(name, partial(clock.peak_bytes, work.call))
        if name in running:
            found[name] = Measured(Spread.of(device[name]), Spread.of(wall[name]), peak)
    return found


def device_times(clock: Clock, calls: Mapping[str, Call]) -> dict[str, float]:
    """Milliseconds that the device takes for each of some calls, by its name: the median of rounds. What a call raises
    is raised."""

    def attempt(_: str, what: Callable[[], Any]) -> Any:
        return what()

    works = {name: Work(call) for name, call in calls.items()}
    delays = _warmed_up(clock, works, works, attempt)
    with _uncollected():
        samples = _device_rounds(clock, works, works, delays, attempt)
    return {name: Spread.of(each).median for name, each in samples.items()}


def _warmed_up(
    clock: Clock, works: Mapping[str, Work], running: Mapping[str, Work], attempt: _Attempt
) -> dict[str, float]:
    """Calls all that runs a few times, and returns the delays in front of samples, in microseconds."""
    for name in list(running):
        for _ in range(WARM_UP):
            if name in running:
                attempt(name, partial(clock.wall_us, works[name].call, 1))
    issue = {name: attempt(name, partial(clock.issue_us, works[name].call)) for name in list(running)}
    return {name: _DELAY_FACTOR * us for name, us in issue.items() if us is not None}


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's garbage collection, behind one."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _device_rounds(
    clock: Clock, works: Mapping[str, Work], running: Mapping[str, Work], delays: Mapping[str, float], attempt: _Attempt
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in running}
    settling, rounds = _LEAST_SETTLING, _LEAST_SETTLING + _LEAST_SAMPLES
    done = 0
    while done < rounds and running:
        queued = {}
        for name in list(running):
            queued[name] = attempt(name, partial(clock.enqueue, works[name].call, delays[name]))
        clock.synchronise()
        for name in running:
            samples[name].append(queued[name]())
        done += 1
        if done == 1 and running:
            slowest = max(samples[name][0] for name in running)
            settling = _within(_SETTLING_MS / slowest, _LEAST_SETTLING, _MOST_SETTLING)
            rounds = settling + _within(_DEVICE_BUDGET_MS / slowest, _LEAST_SAMPLES, _MOST_SAMPLES)
    return {name: values[settling:] for name, values in samples.items()}


def _wall_rounds(
    clock: Clock, works: Mapping[str, Work], running: Mapping[str, Work], attempt: _Attempt
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in running}
    calls = {}
    for name in list(running):
        once = attempt(name, partial(clock.wall_us, works[name].call, _ESTIMATING_CALLS))
        if once is not None:
            calls[name] = _within(_LOOP_US / once, 2, _MOST_CALLS)

    def sample(name: str) -> float:
        clock.wall_us(works[name].call, max(1, calls[name] // 4))
        return clock.wall_us(works[name].call, calls[name])

    for _ in range(WALL_ROUNDS):
        for name in list(running):
            took = attempt(name, partial(sample, name))
            if took is not None:
                samples[name].append(took)
    return samples


def _within(value: float, least: int, most: int) -> int:
    return int(min(max(value, least), most))
