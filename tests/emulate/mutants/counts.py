"""The count of batches: who adds to it, and how often."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import Mutant, wrong

# Of the L2-resident kernel it is also a thread of the same block.
_RACE = r"which (another block has|other threads have|thread \(.*\) has) (written|read)"
_WRONG = wrong("bn_num_batches_tracked")
# By what runs: the file, who counts, the function that is called, and the kernel. Several blocks each, in any order.
_KERNELS = {
    "column": ("column.cuh", "columns_.first == 0", "p_.template count<kPass>();", "column_kernel"),
    "cluster": ("column.cuh", "columns_.first == 0", "p_.template count<kPass>();", "column_kernel"),
    "l2": ("final_reduction.cuh", "channel == 0", "p.template count<kPass>();", "l2_kernel"),
    "two_pass": ("final_reduction.cuh", "channel == 0", "p.template count<kPass>();", "final_reduction_kernel"),
}

COUNTS = [
    Mutant(f"{run}, {name}", run, f"kernels/{file}", None, old, new, caught, kernel if caught is _RACE else None)
    for run, (file, first, call, kernel) in _KERNELS.items()
    for name, old, new, caught in (
        ("nobody counts the batch", call, NOTHING, _WRONG),
        ("the batch counts twice", call, f"{call} {call}", _WRONG),
        ("a thread of each block counts", first, "threadIdx.x == 0", _RACE),
    )
]
