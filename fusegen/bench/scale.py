"""The CSV of benchmarks/scale.py and what it tells: how good the choice of a schedule is, and where time jumps.

A function of the rows, without torch.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, get_type_hints

from fusegen.plan.launches.shapes import AUTOMATIC

MOST_OVER_BEST, MOST_JUMP = 1.1, 1.5
# Two sizes whose rows or channels differ by no more than this are neighbours.
_NEIGHBOURS = 1.5
_SIZE = ("device", "spec", "program", "dtype", "rows", "channels", "groups")


@dataclass(frozen=True)
class ScaleRow:
    """One schedule of one program at one size. None where there is nothing to tell.

    microseconds: median of device time from a flushed L2, with its quartiles. bytes: the fewest that the program moves,
    every input and every output once; copy_microseconds: a device copy of as many in the same rounds. chosen: the
    schedule that `automatic` took, as its launcher says. best: the fastest forced schedule. automatic_over_best: its
    time over theirs.
    """

    spec: str
    program: str
    dtype: str
    rows: int
    channels: int
    groups: int
    schedule: str
    microseconds: float
    microseconds_q1: float
    microseconds_q3: float
    samples: int
    bytes: int
    copy_microseconds: float
    ratio_to_copy: float
    picoseconds_per_element: float
    chosen: str
    best: str
    automatic_over_best: float | None
    device: str
    versions: str

    @property
    def elements(self) -> int:
        return self.rows * self.channels

    @property
    def size(self) -> str:
        """As people write it; groups where there are some."""
        return f"{self.rows}x{self.channels}" + (f"/{self.groups}" if self.groups > 1 else "")

    @property
    def what(self) -> str:
        return f"{self.spec} {self.program} {self.dtype}"


@dataclass(frozen=True)
class Choice:
    """Where the automatic choice is slower than another schedule by more than their quartiles explain."""

    automatic: ScaleRow
    best: ScaleRow

    @property
    def ratio(self) -> float:
        return self.automatic.microseconds / self.best.microseconds


@dataclass(frozen=True)
class Jump:
    """Two sizes side by side. ratio: time per element at `at` over that at `beside`; copy: that of the copies."""

    kind: str
    beside: ScaleRow
    at: ScaleRow

    @property
    def ratio(self) -> float:
        return self.at.picoseconds_per_element / self.beside.picoseconds_per_element

    @property
    def copy(self) -> float:
        at, beside = (row.copy_microseconds / row.elements for row in (self.at, self.beside))
        return at / beside


def append_scale(path: Path, rows: Iterable[ScaleRow]) -> None:
    """Adds rows to a CSV, with a line of names in front of the first."""
    new = not path.exists() or not path.stat().st_size
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(field.name for field in dataclasses.fields(ScaleRow))
        writer.writerows(["" if v is None else v for v in dataclasses.astuple(row)] for row in rows)


def read_scale(path: Path) -> list[ScaleRow]:
    """The rows of a CSV. What was measured again counts as it was measured last."""
    types = get_type_hints(ScaleRow)

    def value(name: str, text: str) -> Any:
        if types[name] in (str, int, float):
            return types[name](text)
        return float(text) if text else None

    with path.open(newline="", encoding="utf-8") as file:
        rows = [ScaleRow(**{k: value(k, v) for k, v in line.items()}) for line in csv.DictReader(file)]
    return list({_key(row, *_SIZE, "schedule"): row for row in rows}.values())


def poor_choices(rows: Sequence[ScaleRow], most: float = MOST_OVER_BEST) -> list[Choice]:
    """The worst first. Where the quartiles overlap nothing is said: the times are not told apart. Nor where the choice
    is the fastest schedule: then the same kernels were launched twice, the second time with their code still cached.
    """
    found = []
    for mine in grouped(rows, *_SIZE):
        automatic = next((row for row in mine if row.schedule == AUTOMATIC), None)
        forced = [row for row in mine if row.schedule != AUTOMATIC]
        if automatic and forced:
            choice = Choice(automatic, min(forced, key=lambda row: row.microseconds))
            other = choice.best.schedule != automatic.chosen
            if other and choice.ratio > most and automatic.microseconds_q1 > choice.best.microseconds_q3:
                found.append(choice)
    return sorted(found, key=lambda choice: -choice.ratio)


def jumps(rows: Sequence[ScaleRow], most: float = MOST_JUMP) -> list[Jump]:
    """Sizes at which an element takes more than `most` times what it takes beside them, the worst first.

    Beside: rows or channels that differ by little (n and n + 1); half the rows; the same elements with half or twice
    the channels. Twice the rows are no measure of what few rows take: that is the time of a launch.
    """
    found = []
    automatic = [row for row in rows if row.schedule == AUTOMATIC]
    for mine in grouped(automatic, "device", "spec", "program", "dtype"):
        for first, second in combinations(sorted(mine, key=lambda row: (row.rows, row.channels)), 2):
            kind = _beside(first, second)
            if kind is None:
                continue
            jump = Jump(kind, first, second)
            if jump.ratio < 1 and kind != "twice the rows":
                jump = Jump(kind, second, first)
            if jump.ratio > most:
                found.append(jump)
    return sorted(found, key=lambda jump: -jump.ratio)


def _beside(a: ScaleRow, b: ScaleRow) -> str | None:
    """How two sizes lie, the one with fewer rows first."""
    if a.channels == b.channels and a.groups == b.groups and a.rows != b.rows:
        if b.rows == 2 * a.rows:
            return "twice the rows"
        return "rows" if b.rows <= _NEIGHBOURS * a.rows else None
    if a.rows == b.rows and a.groups == b.groups:
        few, many = sorted((a.channels, b.channels))
        return "channels" if many <= _NEIGHBOURS * few else None
    alike = a.groups == b.groups or a.channels * b.groups == b.channels * a.groups
    if a.elements == b.elements and a.channels == 2 * b.channels and alike:
        return "aspect"
    return None


def grouped(rows: Sequence[ScaleRow], *names: str) -> list[list[ScaleRow]]:
    """The rows that are equal in these fields, in the order in which the first of them comes."""
    found: dict[tuple[object, ...], list[ScaleRow]] = {}
    for row in rows:
        found.setdefault(_key(row, *names), []).append(row)
    return list(found.values())


def _key(row: ScaleRow, *names: str) -> tuple[object, ...]:
    return tuple(getattr(row, name) for name in names)
