"""Times of launches taken in rounds, and which launch shapes they speak for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from fusegen.bench.clock import Clock
from fusegen.bench.rounds import Spread
from fusegen.plan.launches.shapes import DEFAULT, Shapes

# A tuning is worth a line in a table where it saves more than this.
LEAST_GAIN = 0.03
_LEAST_SAMPLES, _MOST_SAMPLES, _BUDGET_MS = 5, 9, 80.0

Name = TypeVar("Name")


def measure(
    clock: Clock,
    calls: Mapping[Name, Callable[[], object]],
    *,
    most: int = _MOST_SAMPLES,
    budget_ms: float = _BUDGET_MS,
) -> dict[Name, Spread]:
    """Microseconds of each call, all of them in turn. The first round warms up and says how many can follow.

    most: samples of each call. budget_ms: the device time that they may take together, if they are not too few then.
    """
    samples: dict[Name, list[float]] = {name: [] for name in calls}
    rounds = 1
    while rounds:
        queued = [(name, clock.enqueue(call, 0.0)) for _ in range(rounds) for name, call in calls.items()]
        clock.synchronise()
        for name, milliseconds in queued:
            samples[name].append(milliseconds() * 1e3)
        first = sum(values[0] for values in samples.values()) / 1e3
        taken = len(next(iter(samples.values()))) > 1
        rounds = 0 if taken else int(min(max(budget_ms / max(first, 1e-3), _LEAST_SAMPLES), most))
    return {name: Spread.of(values[1:]) for name, values in samples.items()}


def fastest(times: Mapping[Shapes, Spread]) -> Shapes:
    """The fastest shapes where they beat the default by more than LEAST_GAIN and by more than both vary, else the
    default."""
    default = times[DEFAULT]
    best = min(times, key=lambda shapes: times[shapes].median)
    gains = times[best].median < (1 - LEAST_GAIN) * default.median and times[best].high < default.low
    return best if gains else DEFAULT
