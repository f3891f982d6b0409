"""What templates/program.cu.j2 is given: a program in C++, piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusegen.render.work import Work


@dataclass(frozen=True)
class Field:
    """A field of a record: its name, and the type that the record is made for, if it depends on that."""

    name: str
    type: str = ""

    @property
    def declaration(self) -> str:
        return f"Of<{self.type}> {self.name};"


def visits(fields: Sequence[Field]) -> str:
    """The body of a record's each()."""
    return " ".join(f"f(Index<{i}>(), r.{field.name}...);" for i, field in enumerate(fields))


@dataclass(frozen=True)
class InMemory:
    """A tensor of fewer elements that a pass may find in memory. present: C++; when there is one. made: the pass that
    makes it, or BEFORE. uses: the passes that need it, as bits."""

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
    """One pass in C++. unit: what its sums have one value each of. level: values that no earlier pass computes. terms,
    results: what an element adds to sums, and what is stored of it. stored, scratch: what follows and is stored."""

    unit: str
    read_by: int
    sums: list[Field]
    components: int
    level: list[str]
    terms: list[str]
    results: list[str]
    follow: list[str]
    finish: list[str]
    stored: list[Stored]
    scratch: list[Stored]
    counts: list[Stored]
    samples: list[Stored]
    cached_in_registers: int
    cached_in_shared: int

    @property
    def store_lines(self) -> list[str]:
        lines = [f"f({each.pointer}, {each.field});" for each in self.stored]
        if self.scratch:
            inner = [f"  f({each.pointer}, {each.field});" for each in self.scratch]
            lines += ["if constexpr (!kResident) {", *inner, "}"]
        return lines

    @property
    def sample_lines(self) -> list[str]:
        return [f"f(Index<{each.field}>(), {each.pointer});" for each in self.samples]

    @property
    def count_lines(self) -> list[str]:
        return [f"if ({each.field} >= 0 && {each.pointer} != nullptr) ++*{each.pointer};" for each in self.counts]


@dataclass(frozen=True)
class Member:
    """A pointer or constant of the struct. argument: what it is made of; empty for what lies in the workspace."""

    declaration: str
    argument: str
    shape: str
    note: str = ""
    order: int = 0


@dataclass(frozen=True)
class StructText:
    """What the template prints of a program. channels_pass: that which reduces channels to scalars, if there is one.
    has_parts: whether any of `reads` and `writes` is a part of a tensor.
    dropouts: of all that is drawn; drawn: the fields of what is drawn for each element.
    product: which of `reads` the epilogue of a product has, if one takes the program."""

    name: str
    arguments: str
    sums: str
    reads: list[Field]
    writes: list[Field]
    has_parts: bool
    optional_writes: int
    outer_reads: int
    outer_writes: int
    product: int | None
    read_arguments: list[str]
    write_arguments: list[str]
    members: list[Member]
    constants: list[Member]
    dropouts: list[Member]
    drawn: list[str]
    scratch: list[tuple[Member, int, str, bool]]
    scalars: list[str]
    records: dict[str, list[str]]
    in_memory: dict[str, list[InMemory]]
    derived: dict[str, list[str]]
    cached: list[Field]
    passes: list[PassText]
    channels_pass: PassText | None
    schedules: list[str]
    work: Work
