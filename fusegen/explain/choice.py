"""What a launcher would run for a call, as it says itself."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Considered:
    """A schedule that a launcher looked at. estimate: about microseconds, None where there is none; only the order of
    estimates means something."""

    schedule: str
    chosen: bool
    reason: str
    estimate: float | None


@dataclass(frozen=True)
class Launch:
    """A launch. passes: the first and the last pass over the elements that the kernel does."""

    kernel: str
    passes: tuple[int, int]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int


@dataclass(frozen=True)
class Choice:
    """The schedules that were considered, in order, and the launches of the chosen one."""

    considered: tuple[Considered, ...]
    launches: tuple[Launch, ...]

    @property
    def schedule(self) -> str:
        """The schedule that runs; empty where there is nothing to run."""
        return next((each.schedule for each in self.considered if each.chosen), "")


def choice(text: str) -> Choice:
    """From the lines that a launcher's `_explain` writes."""
    considered, launches = [], []
    for line in map(json.loads, text.splitlines()):
        if "considered" in line:
            considered.append(Considered(line["considered"], line["chosen"], line["reason"], line.get("estimate")))
        else:
            passes, grid, block = (tuple(line[key]) for key in ("passes", "grid", "block"))
            launches.append(Launch(line["kernel"], passes, grid, block, line["shared_bytes"]))
    return Choice(tuple(considered), tuple(launches))
