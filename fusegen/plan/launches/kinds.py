"""The kinds of kernels: what planning has to know of each, in one place; and how schedules are forced."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

AUTOMATIC, PERSISTENT, L2, TWO_PASS = "automatic", "persistent", "l2", "two_pass"


class Stays(Enum):
    """Where a kernel's elements are from one of its passes to the next."""

    REGISTERS = "registers"
    SHARED = "shared memory"
    L2 = "the L2"


@dataclass(frozen=True)
class Tunable:
    """A number in Shapes. values: those worth measuring, the default among them. sums: only kernels that leave partial
    sums of columns read it. cluster: its values are blocks of a cluster."""

    values: tuple[int, ...]
    sums: bool = False
    cluster: bool = False


@dataclass(frozen=True)
class KernelKind:
    """stays: where elements stay; None: each pass reads them from memory. of_elements: whether it reads elements, and
    not only partial results or values of channels. along_rows: whether a thread's elements are of a row, so that the
    constants of their columns are others for each. in_place: whether its last pass may store results over elements that
    it reads, where rows and groups begin with a vector: a thread stores those that it has read, and by then no other
    thread has to read them. tunables: the numbers in Shapes that its launches read."""

    stays: Stays | None = None
    of_elements: bool = True
    along_rows: bool = False
    in_place: bool = False
    tunables: dict[str, Tunable] = field(default_factory=dict)


KERNELS = {
    "pointwise": KernelKind(in_place=True, tunables={"pointwise_blocks": Tunable((0, 2, 4, 8, 16, 32), sums=True)}),
    # In place of the pointwise one: no program has a schedule of its own with them.
    "tile": KernelKind(),
    "plane": KernelKind(),
    "plane_shared": KernelKind(),
    "pooled": KernelKind(),
    "row": KernelKind(
        Stays.REGISTERS,
        along_rows=True,
        in_place=True,
        tunables={"row_waves": Tunable((1, 2)), "row_share": Tunable((0, 1, 2))},
    ),
    "column": KernelKind(
        Stays.SHARED,
        in_place=True,
        tunables={
            "column_threads_per_row": Tunable((0, 2, 4, 8, 16)),
            "column_cluster": Tunable((0, 1, 2, 4, 8), cluster=True),
        },
    ),
    "l2": KernelKind(Stays.L2, in_place=True, tunables={"l2_lag": Tunable((0, 1, 2, 4, 8))}),
    "row_reduction": KernelKind(
        along_rows=True, tunables={"row_reduction_blocks": Tunable((0, 1, 4, 8), cluster=True)}
    ),
    "final_reduction": KernelKind(of_elements=False),
    "sample_reduction": KernelKind(of_elements=False),
    "scalar_reduction": KernelKind(of_elements=False),
}

TUNABLES = {name: tunable for kind in KERNELS.values() for name, tunable in kind.tunables.items()}
