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

    def __str__(self) -> str:
        """The kernel, its blocks, and the threads of each: `column 16x1x4 of 32x16`. A third extent of the grid is the
        blocks of a cluster."""
        return f"{self.kernel} {_extents(self.grid)} of {_extents(self.block)}"


@dataclass(frozen=True)
class Choice:
    """The schedules that were considered, in order, and the launches of the chosen one."""

    considered: tuple[Considered, ...]
    launches: tuple[Launch, ...]

    @property
    def schedule(self) -> str:
        """The schedule that runs; empty where there is nothing to run."""
        return next((each.schedule for each in self.considered if each.chosen), "")

    @property
    def launched(self) -> str:
        """The launches as one line."""
        return ", ".join(map(str, self.launches))


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


def _extents(extents: tuple[int, int, int]) -> str:
    """Without the ones at the end."""
    count = max((index for index, extent in enumerate(extents, start=1) if extent > 1), default=1)
    return "x".join(map(str, extents[:count]))
