"""What the launchers' templates are given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pointer:
    """A tensor that a launcher is given. field: what holds it among the launcher's arguments. type: with `const`."""

    name: str
    field: str
    type: str


@dataclass(frozen=True)
class ScratchContext:
    """A tensor in the workspace, and its number of elements."""

    pointer: str
    count: str


@dataclass(frozen=True)
class ScheduleContext:
    """A schedule. groups: the segments of a row, in C++, as are all texts here.

    row_work, row_staged, column_work: what the row or column kernel has to do; empty where there is none. row_sums:
    whether the row kernel takes sums of columns. streams: launch shapes of stream kernels, and what each has to do.
    partial_blocks, partials: how many blocks leave partial sums, and the elements of the workspace that these take.
    launches: the lines of each launch.
    """

    kind: str
    comment: list[str]
    groups: str
    row_work: str
    row_staged: str
    row_sums: bool
    column_work: str
    streams: list[tuple[str, str]]
    needs_finalise: bool
    partial_blocks: str
    partials: str
    scratch: list[ScratchContext]
    launches: list[list[str]]


@dataclass(frozen=True)
class ModeContext:
    """A mode. types: the arguments for the launcher's template. verification: only verification builds have it."""

    index: int
    name: str
    types: str
    verification: bool


@dataclass(frozen=True)
class ProgramContext:
    """A program. struct: the type of the launcher's arguments. groups: whether it takes their number.

    elements, vectors: pointers to tensors with all elements, and to shorter ones. arrays: the values of a column that
    the kernel with the most of them keeps.
    """

    name: str
    symbol: str
    struct: str
    pointers: list[Pointer]
    groups: bool
    schedules: list[ScheduleContext]
    elements: list[str]
    vectors: list[str]
    arrays: int
    types: str
