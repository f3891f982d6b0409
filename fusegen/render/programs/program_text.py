"""What templates/program.cu.j2 is given: a program in C++, piece by piece."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fusegen.plan.launches.kinds import Stays
from fusegen.render.programs.work import Work
from fusegen.render.text.layout import WIDTH

_ALL = {"Read": "kAllReads", "Write": "kAllWrites"}


def macro(head: str, fields: Sequence[str]) -> list[str]:
    """Lines of a macro that takes a list of fields (kernels/fields.cuh); none without fields. head: up to the list."""
    if not fields:
        return []
    line, last = f"{head}{' '.join(fields)})", f"    {fields[-1]})"
    return [line] if len(line) + 2 <= WIDTH else [head.rstrip(), *(f"    {each}" for each in fields[:-1]), last]


def mask(numbers: str, fields: Sequence[str], some: Collection[str]) -> str:
    """C++: the mask of some fields of a record, in the record's order; "0" without any. numbers: the scope of their
    numbers."""
    named = [f"{numbers}::{name}" for name in fields if name in some]
    if len(named) == len(fields) > 1 and numbers in _ALL:
        return _ALL[numbers]
    return f"mask_of({', '.join(named)})" if named else "0"


@dataclass(frozen=True)
class InMemory:
    """A tensor of fewer elements that a pass may find in memory. present: C++; when there is one. made: the pass that
    makes it, or BEFORE. uses: C++: the passes whose elements need it."""

    pointer: str
    present: str
    field: str
    made: int
    uses: str


@dataclass(frozen=True)
class Stored:
    """A pointer, and the field whose value goes there."""

    pointer: str
    field: str


@dataclass(frozen=True)
class PassText:
    """One pass in C++. unit: what its sums have one value each of. read_by: the mask of what it reads. sums: their
    record. level: values that no earlier pass computes. terms, results: what an element adds to sums, and what is
    stored of it. stored, scratch: what follows and is stored. cached: the mask of what is cached when it begins."""

    unit: str
    read_by: str
    sums: list[str]
    level: list[str]
    terms: list[str]
    results: list[str]
    follow: list[str]
    finish: list[str]
    stored: list[Stored]
    scratch: list[Stored]
    counts: list[Stored]
    cached: Mapping[Stays, str]

    @property
    def store_lines(self) -> list[str]:
        lines = [f"f({each.pointer}, {each.field});" for each in self.stored]
        if self.scratch:
            inner = [f"  f({each.pointer}, {each.field});" for each in self.scratch]
            lines += ["if constexpr (!kResident) {", *inner, "}"]
        return lines

    @property
    def count_lines(self) -> list[str]:
        return [f"if ({each.field} >= 0 && {each.pointer} != nullptr) ++*{each.pointer};" for each in self.counts]


@dataclass(frozen=True)
class Member:
    """A pointer or constant of the struct, with its initialiser."""

    declaration: str
    shape: str = ""
    note: str = ""
    order: int = 0


@dataclass(frozen=True)
class StructText:
    """What the template prints of a program. channels_pass: that which reduces channels to scalars, if there is one.
    reads, writes, cached: records. sums: the record of each pass, in order. has_parts: whether any of `reads` and
    `writes` is a part of a tensor. has_partials: whether any pass sums columns. of_samples: whether it has
    values of samples. pooling: what is stored of windows, if anything is.
    dropouts: of all that is drawn; drawn: the fields of what is drawn for each element.
    product: which of `reads` the epilogue of a product has, if one takes the program. Masks are empty where no field is
    meant."""

    name: str
    arguments: str
    sums: str
    reads: list[str]
    writes: list[str]
    has_parts: bool
    has_partials: bool
    of_samples: bool
    pooling: str
    optional_writes: str
    outer_reads: str
    outer_writes: str
    tile_reads: str
    product: str
    members: list[Member]
    constants: list[Member]
    dropouts: list[Member]
    drawn: list[str]
    scratch: list[tuple[Member, int, str, bool]]
    scalars: list[str]
    records: dict[str, list[str]]
    in_memory: dict[str, list[InMemory]]
    derived: dict[str, list[str]]
    cached: list[str]
    cached_in_registers: list[str]
    cached_in_shared: list[str]
    passes: list[PassText]
    channels_pass: PassText | None
    schedules: list[str]
    work: Work
