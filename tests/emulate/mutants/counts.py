"""The count of batches: who adds to it, how often, and who may read it."""

from __future__ import annotations

from tests.emulate.mutants.mutant import Mutant, wrong

_COUNT = "++*bn_num_batches_tracked_ptr;"
# Of a panel kernel it is also a thread of the same block.
_RACE = r"which (another block has|other threads have|thread \(.*\) has) (written|read)"
_READ = "bn_momentum_v < 0 && bn_num_batches_tracked_ptr != nullptr"
_WRONG = wrong("bn_num_batches_tracked")
# Several blocks each, which run in any order.
_KERNELS = {
    "column": ("train_forward_column", "columns.first == 0"),
    "cluster": ("train_forward_column", "columns.first == 0"),
    "panels": ("train_forward_panel", "column == 0"),
    "split": ("train_forward_finalise", "column == 0"),
}


def _mutants(run: str, kernel: str, first: str) -> list[Mutant]:
    condition = f"{first} && bn_momentum_v >= 0"
    found = [
        ("nobody counts the batch", run, _COUNT, "static_cast<void>(0);", _WRONG),
        ("the batch counts twice", run, _COUNT, "*bn_num_batches_tracked_ptr += 2;", _WRONG),
        ("a thread of each block counts", run, condition, "threadIdx.x == 0 && bn_momentum_v >= 0", _RACE),
        ("a count that is written is read", run, _READ, "bn_num_batches_tracked_ptr != nullptr", _RACE),
    ]
    if run != "cluster":
        cumulative = f"{run}, cumulative"
        found += [
            ("a count that is read is written", cumulative, condition, first, _RACE),
            ("an average of no batches", cumulative, _READ, "false", r"(NaN in|wrong) bn_running_mean\b"),
        ]
    return [
        Mutant(f"{of}, {what}", of, old, new, caught, within=kernel, kernel=kernel if caught is _RACE else None)
        for what, of, old, new, caught in found
    ]


COUNTS = [mutant for run, (kernel, first) in _KERNELS.items() for mutant in _mutants(run, kernel, first)]
