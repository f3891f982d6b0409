"""The mean of losses: which rows are read and count, and who writes it."""

from __future__ import annotations

from tests.emulate.mutants.mutant import Mutant

_KERNEL = "kernels/mean_loss.cuh"
_OUTSIDE = r"(reads|writes) .*\d+ bytes past its end"

MEAN_LOSSES = [
    Mutant(f"mean loss: {name}", "rows", _KERNEL, None, old, new, caught, kernel, nth, of)
    for name, old, new, caught, kernel, nth, of in (
        ("rows past the end", "row >= a.rows", "false", _OUTSIDE, "mean_loss_kernel", 0, 1),
        ("values that were not read", "first + i * kMeanLossThreads >= a.rows", "false", "wrong", None, 0, 1),
        ("the first batch alone", "first < a.rows", "first < kMeanLossThreads && first < a.rows", "wrong", None, 0, 1),
        ("every row counts", "target[i] == a.ignored", "false", "wrong", None, 0, 1),
        (
            "another thread's sum",
            "threadIdx.x != 0",
            "threadIdx.x == 0",
            r"writes global memory .*, which thread \(.*\) has written",
            None,
            0,
            1,
        ),
    )
]
