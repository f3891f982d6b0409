"""What the kernel templates are given."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusegen.render.spelling import value

_MOST_ARRAYS = 7  # values of each column that fit 64 registers beside the rest of a kernel


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: its declaration, and the expression a launch passes."""

    declaration: str
    argument: str


@dataclass(frozen=True)
class Load:
    """A tensor that is read.

    condition: extra condition for tensors whose pointer may be null. index: where a segment's value stands;
    `{row}` is the row.
    """

    name: str
    pointer: str
    type: str
    condition: str = ""
    index: str = ""

    @property
    def v(self) -> str:
        """What the loaded value is called."""
        return value(self.name)

    @property
    def pack(self) -> str:
        """How a tile holds it: as it came from memory, or as it was computed."""
        return f"Loaded<{self.type}, kVec, kPacked>" if self.pointer else f"Pack<{self.type}, kVec>"


@dataclass(frozen=True)
class Fetch:
    """A tensor that is brought to the tile of this name."""

    name: str
    pointer: str
    type: str
    tile: str


@dataclass(frozen=True)
class Store:
    """A tensor that is written. optional: its pointer may be null."""

    name: str
    pointer: str
    type: str
    optional: bool
    value: str
    narrowed: str


@dataclass(frozen=True)
class Count:
    """A count of batches. momentum: where it is negative kernels read the count, else one thread adds one to it."""

    pointer: str
    momentum: str


@dataclass(frozen=True)
class Sum:
    """A sum that a pass takes. moments: mean and squared distances instead. slot: its place among the partial
    results."""

    name: str
    value: str
    moments: bool
    slot: int

    @property
    def v(self) -> str:
        """What the sum is called."""
        return value(self.name)


@dataclass(frozen=True)
class Sweep:
    """One loop over elements.

    fresh: the first sweep loads from memory, later ones reuse what is on chip. keep_values: what stays on chip for
    later sweeps, which would have to compute it again. deviations: for the second sweep over the moments' operands,
    those moments.
    segments: values of other segments than the kernel's own. constants: how many of each column it uses.
    """

    loads: list[Load]
    columns: list[Load]
    segments: list[Load]
    lines: list[str]
    sums: list[Sum]
    stores: list[Store]
    constants: int = 0
    fresh: bool = False
    keep_values: list[tuple[str, str]] = field(default_factory=list)
    deviations: list[Sum] = field(default_factory=list)

    @property
    def rows_together(self) -> int:
        """How many rows a thread of a panel kernel loads before it uses the first: as many as registers have room
        for beside what it keeps of its columns."""
        if len(self.loads) == 1:
            return 8
        kept = self.constants + sum(3 if sum_.moments else 1 for sum_ in self.sums)
        return 4 if len(self.loads) == 2 and kept <= _MOST_ARRAYS else 2


@dataclass(frozen=True)
class Stage:
    """A sweep and what follows once its sums are known.

    owner_loads, owner_arrays, owner_lines: in a column kernel, what only the threads need that store a column's values.
    """

    sweep: Sweep
    deviation: Sweep | None
    arrays: list[str]
    results: list[str]
    stores: list[Store]
    owner_loads: list[Load] = field(default_factory=list)
    owner_arrays: list[str] = field(default_factory=list)
    owner_lines: list[str] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)


@dataclass(frozen=True)
class KernelContext:
    """One kernel.

    large: whether a row kernel has an instance for large blocks, which keeps constants and sums of its columns in
    shared memory. many_constants: whether those with eight columns a thread keep constants there in any case. parts:
    of a panel kernel, what it does: partial sums, their end, results.
    """

    name: str
    kind: str
    comment: list[str]
    parameters: list[Parameter]
    scalars: list[str]
    scalar_loads: list[Load]
    column_loads: list[Load]
    large: bool
    many_constants: bool
    segment_loads: list[Load]
    column_arrays: list[str]
    column_lines: list[str]
    segment_lines: list[str]
    stages: list[Stage]
    partial_sums: list[Sum]
    slots: int
    loads: list[Load]
    tiles: list[Load]
    uses_groups: bool
    uses_turns: bool
    inner_groups: bool
    parts: list[KernelContext] = field(default_factory=list)

    @property
    def fetched(self) -> list[Fetch]:
        """The first sweep's loads that go to shared memory on their own: to their tiles, or to where a value will be
        held in place of them."""
        tiles = {tile.name: tile for tile in self.tiles}
        free = [name for name, tile in tiles.items() if not tile.pointer]
        found = []
        for load in self.loads:
            place = load.name if load.name in tiles else free.pop(0) if free else None
            if place:
                found.append(Fetch(load.name, load.pointer, load.type, place))
        return found

    @property
    def exchanges(self) -> list[list[Sum]]:
        """The sums that a part of a panel kernel leaves, as its threads exchange them: moments one at a time, others
        together where they are next to each other."""
        found: list[list[Sum]] = []
        for sum_ in self.partial_sums:
            before = found[-1][-1] if found else None
            if before is None or sum_.moments or before.moments:
                found.append([])
            found[-1].append(sum_)
        return found

    @property
    def panel_values(self) -> str:
        """C++: how many values each warp of a panel kernel exchanges, given the columns of a panel."""
        moments = max(sum(sum_.moments for sum_ in part.partial_sums) for part in self.parts)
        slots = max(part.slots for part in self.parts)
        return f"{slots} * panel.block.x * kVec{f' + {moments}' if moments else ''}"

    @property
    def made(self) -> list[str]:
        """Pointers to what the finalising part of a panel kernel stores."""
        return [store.pointer for stage in self.parts[1].stages for store in stage.stores]

    @property
    def uses_row(self) -> bool:
        """Whether a row kernel has to count rows, besides its segments."""
        return any(load.index == "row" for load in self.segment_loads)

    @property
    def clusters(self) -> bool:
        """Whether a row kernel has an instance for segments that a cluster holds. Moments are taken forward, where no
        row kernel has column sums."""
        return self.kind == "row" and bool(self.partial_sums) and not self.has_moments

    @property
    def has_moments(self) -> bool:
        return any(sum_.moments for stage in self.stages for sum_ in stage.sweep.sums)

    @property
    def has_partial_moments(self) -> bool:
        return any(sum_.moments for sum_ in self.partial_sums)

    def totals(self, sweep: Sweep) -> list[str]:
        """The sums that a sweep takes over a segment; not its moments."""
        return [s.v for s in sweep.sums if not s.moments and not self.is_partial(s)]

    def moments_of(self, sweep: Sweep) -> list[str]:
        """The moments that a sweep takes over a segment; `x_summed` is the sum that the mean of `x` is made of."""
        return [s.name for s in sweep.sums if s.moments and not self.is_partial(s)]

    @property
    def exchanged_by_warps(self) -> int:
        """How many values of a segment its warps exchange at once, at most."""
        sums = [len(self.totals(stage.sweep)) for stage in self.stages]
        return max(2 if self.has_moments else 0, *sums)

    def partials_of(self, sweep: Sweep) -> list[Sum]:
        """The sums that a sweep adds to what leaves the kernel as partial results."""
        return [s for s in sweep.sums if self.is_partial(s)]

    @property
    def stages_constants(self) -> bool:
        """Whether some instance of a row kernel keeps the constants of its columns in shared memory."""
        return bool(self.column_loads) and (self.large or self.many_constants)

    def staged(self, large: str, columns: str) -> str:
        """C++: whether an instance of a row kernel keeps anything of its columns in shared memory, given whether it is
        the one for large blocks and how many columns a thread has."""
        cases = {large: self.large, f"{columns} >= 8": self.many_constants}
        return " || ".join(case for case, applies in cases.items() if applies)

    @property
    def staged_arrays(self) -> list[tuple[str, str]]:
        """What instances of a row kernel keep in shared memory, and its type: of each column."""
        constants = [(load.name, load.type) for load in self.column_loads] if self.stages_constants else []
        return constants + ([(sum_.name, "Acc") for sum_ in self.partial_sums] if self.large else [])

    def row_exchange(self, vector: str) -> str:
        """C++: how many values the threads of a row kernel exchange through shared memory, given those of a vector."""
        if self.partial_sums:
            return f"kRowExchange<{vector}, {self.exchanged_by_warps}>"
        return str(32 * (self.exchanged_by_warps + self.has_moments))

    @property
    def arrays(self) -> int:
        """How many values of each of its columns a thread keeps: constants and sums."""
        if self.kind in ("finalise", "total"):
            return 0
        sums = self.partial_sums
        if self.kind == "column":
            sums = [sum_ for stage in self.stages for sum_ in stage.sweep.sums]
        results = sum(len(stage.arrays) for stage in self.stages)
        return len(self.column_loads) + len(self.column_arrays) + sum(3 if s.moments else 1 for s in sums) + results

    @property
    def row_blocks(self) -> int:
        """How many blocks of 256 threads with one vector a multiprocessor must hold: the fewer, the more registers a
        thread has."""
        return 4 if self.arrays <= _MOST_ARRAYS and len(self.loads) == 1 else 3

    @property
    def panel_blocks(self) -> str:
        """C++: how many blocks of a panel kernel a multiprocessor must hold: one more where elements have 16 bits,
        whose vectors take half the registers, unless many rows of several tensors are on their way."""
        least = 4 if len(self.loads) == 1 else 3
        several = len(self.loads) > 1 and self.parts[-1].stages[0].sweep.rows_together > 2
        return str(least) if several else f"sizeof(T) == 2 ? {least + 1} : {least}"

    @property
    def widest_exchange(self) -> int:
        """How many sums the threads of a block exchange at once; the templates take sums in pairs."""
        return 2 if self.has_moments or any(len(stage.sweep.sums) > 1 for stage in self.stages) else 1

    @property
    def exchanged(self) -> int:
        """How many values of a column a block of a cluster shows the others at once."""
        sums = [[2 if sum_.moments else 1 for sum_ in stage.sweep.sums] for stage in self.stages]
        return max((sum(each) for each in sums), default=0)

    def is_partial(self, sum_: Sum) -> bool:
        """Whether the sum leaves the kernel as one partial result per block."""
        return any(sum_.name == partial.name for partial in self.partial_sums)
