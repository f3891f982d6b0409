"""Barriers that are missing, or that only some threads come to. Each one in each kind of kernel that relies on it."""

from __future__ import annotations

from tests.emulate.mutants.mutant import EARLY, RACE, UNWRITTEN, Mutant, wrong

_FIRST = [  # what it is removed from, the scenario, the kernel that is caught
    ("sum_over_y", "column", "train_forward_column", "true"),
    ("sum_over_y", "split", "train_forward_finalise", "N == 1"),
    ("sum_over_y", "split", "train_forward_partials", "N > 1"),
    ("sum_over_y", "segments", "backward_apply", "N > 1"),
    ("moments_over_warps", "long rows", "forward_row", "true"),
    ("sum_over_warps", "long rows", "backward_row", "true"),
    ("sum_over_warps", "segments", "forward_segments", "true"),
]
_SECOND = [
    *_FIRST,
    ("sum_over_y", "stream", "backward", "N > 1"),
    ("sum_over_warps", "column", "train_backward_total", "true"),
]
_THIRD = [case for case in _SECOND if case[0] == "sum_over_y"]
_BARRIERS = {"sum_over_y": 3, "sum_over_warps": 2, "moments_over_warps": 2}

# The first barrier keeps a call from overwriting what others still read for the call before, in a loop that of the
# turn before; the second one keeps
# those that add up from reading before it is written, the third one all from reading before it is added up.
REMOVED = [
    Mutant(
        f"{function} in {kernel} without barrier {nth + 1}",
        run,
        "__syncthreads();",
        f"if (!({where})) __syncthreads();",
        EARLY if nth == 1 else RACE,
        within=function,
        kernel=kernel,
        file="reduce.cuh",
        nth=nth,
        of=_BARRIERS[function],
    )
    for nth, cases in enumerate((_FIRST, _SECOND, _THIRD))
    for function, run, kernel, where in cases
]

# Of the rows that are left, half are read by the others, who must not come before.
REMOVED.append(
    Mutant(
        "sum_over_rows in backward_row without its barrier",
        "short rows",
        "__syncthreads();",
        "static_cast<void>(0);",
        EARLY,
        within="sum_over_rows",
        kernel="backward_row",
        file="reduce.cuh",
    )
)

_SITE = r"reduce.cuh:\d+"
_OTHER_BARRIER = rf"is at the barrier {_SITE} while thread \(.*\) waits at the barrier {_SITE}"
_AT_BARRIER = rf"waits at {_SITE} with mask 0xffffffff for lane \d+, which waits at {_SITE} for the block's barrier"
_AT_SHUFFLE = rf"is at {_SITE} while lane \d+ is in another shuffle at {_SITE}"
_EXITED = r"names lane \d+, but no such lane is alive|for lane \d+, which has exited"

_COLUMN_SUMS = "sum_over_y<kVec>(shared, d_over_divide_value_sum_v, bn_centered_d_over_divide_value_sum_v);"

DIVERGENT = [
    Mutant(
        "only some rows of a block come to a barrier",
        "column",
        "__syncthreads();",
        "if (threadIdx.y % 2 == 0) __syncthreads();",
        _OTHER_BARRIER,
        within="sum_over_y",
        kernel="train_forward_column",
        file="reduce.cuh",
        of=3,
    ),
    Mutant(
        "only the first warp comes to the last barrier",
        "long rows",
        "__syncthreads();",
        "if (threadIdx.x < 32) __syncthreads();",
        f"{_OTHER_BARRIER}|{EARLY}",
        within="moments_over_warps",
        kernel="forward_row",
        file="reduce.cuh",
        nth=1,
        of=2,
    ),
    Mutant(
        "threads without a column leave before a sum",
        "column",
        _COLUMN_SUMS,
        f"if (!active) return; {_COLUMN_SUMS}",
        _EXITED,
        within="train_backward_column",
        kernel="train_backward_column",
    ),
    Mutant(
        "threads without a row leave the loop before the others",
        "few lanes",
        "base < rows",
        "base + seat.row < rows",
        f"{_EXITED}|{_AT_BARRIER}|{_AT_SHUFFLE}",
        within="backward_row",
        kernel="backward_row",
    ),
    Mutant(
        "all but the first row return from a block that has another sum to take",
        "split",
        "sum_over_y<1>(shared, d_over_divide_value_sum_all);",
        "sum_over_y<1>(shared, d_over_divide_value_sum_all); if (threadIdx.y != 0) return;",
        wrong("grad_bn_weight"),  # the second sum has the others' values of the first
        within="train_backward_finalise",
    ),
]

# Kernels of one launcher rely on the end of the one before as on a barrier.
LAUNCHES = [
    Mutant(
        f"{kernel} is not launched",
        run,
        f"launch({kernel}<{types}>, ...)",
        "cudaSuccess",
        UNWRITTEN,
        within=launcher,
        kernel=caught,
    )
    for kernel, types, launcher, run, caught in (
        ("train_forward_partials", "T, kVec, kPacked", "train_forward_launch", "split", "train_forward_finalise"),
        ("train_forward_finalise", "T, Param", "train_forward_launch", "split", "train_forward_apply"),
        ("forward_segments", "T, kVec, kPacked", "forward_launch", "segments", "forward_apply"),
        ("backward_segments", "T, Out, Param, kVec, kPacked", "backward_launch", "segments", "backward_apply"),
    )
]

BARRIERS = [*REMOVED, *DIVERGENT, *LAUNCHES]
