"""Barriers that are missing, or that only some threads come to, and kernels that are not launched."""

from __future__ import annotations

from tests.emulate.mutants.mutant import (
    EARLY,
    HEADER_OF,
    RACE,
    REDUCTION_SITE,
    UNWRITTEN,
    UNWRITTEN_SHARED,
    Mutant,
    nan,
)  # fmt: skip

_TWO_PASS, _PASSES = "kernels/two_pass_schedule.cuh", "kernels/memory_passes.cuh"
_BARRIER = "__syncthreads();"
NOTHING = "static_cast<void>(0);"

_FIRST = [  # what it is removed from, the scenario, the kernel that is caught
    ("sum_over_y", "column", "column_kernel"),
    ("sum_over_y", "two_pass", "pointwise_kernel"),
    ("moments_over_warps", "long rows", "row_kernel"),
    ("reduce_over_warps", "long rows", "row_kernel"),
    ("reduce_over_warps", "segments", "row_reduction_kernel"),
]
_SECOND = [*_FIRST, ("sum_over_y", "pointwise", "pointwise_kernel")]
_THIRD = [case for case in _SECOND if case[0] == "sum_over_y"]
_BARRIERS = {"sum_over_y": 3, "reduce_over_warps": 2, "moments_over_warps": 2}

# The first barrier keeps a call from overwriting what others still read for the call before, in a loop that of the
# iteration before; the second one keeps those that add up from reading before it is written, the third one all from
# reading before it is added up.
REMOVED = [
    Mutant(f"{function}, {run}: without barrier {nth + 1}", run, HEADER_OF[function], function, _BARRIER, NOTHING,
           EARLY if nth == 1 else RACE, kernel, nth, _BARRIERS[function])
    for nth, cases in enumerate((_FIRST, _SECOND, _THIRD))
    for function, run, kernel in cases
]  # fmt: skip

# Of the rows that are left, half are read by the others, who must not come before.
REMOVED.append(
    Mutant("sum_over_rows: without its barrier", "short rows", HEADER_OF["sum_over_rows"], "sum_over_rows", _BARRIER,
           NOTHING, EARLY,
           "row_kernel")
)  # fmt: skip

_SITE = REDUCTION_SITE
_OTHER_BARRIER = rf"is at the barrier {_SITE} while thread \(.*\) waits at the barrier {_SITE}"
_AT_BARRIER = rf"waits at {_SITE} with mask 0xffffffff for lane \d+, which waits at {_SITE} for the block's barrier"
_AT_SHUFFLE = rf"is at {_SITE} while lane \d+ is in another shuffle at {_SITE}"
_EXITED = r"names lane \d+, but no such lane is alive|for lane \d+, which has exited"
_COLUMN_SUMS = (
    "reduce_column_sums<P, kPass>( p_, sum, count_, last_ - first_, rows_per_block_, shared_, exchange_, total);"
)
_TOTAL = "total = total_over_y(shared, sum, seen, all);"

DIVERGENT = [
    Mutant(name, run, file, within, old, new, caught, kernel, nth, of)
    for name, run, file, within, old, new, caught, kernel, nth, of in (
        ("only some rows of a block come to a barrier", "column", HEADER_OF["sum_over_y"], "sum_over_y", _BARRIER,
         f"if (threadIdx.y % 2 == 0) {_BARRIER}", _OTHER_BARRIER, "column_kernel", 0, 3),
        ("only the first warp comes to the last barrier", "long rows", HEADER_OF["moments_over_warps"],
         "moments_over_warps", _BARRIER,
         f"if (threadIdx.x < 32) {_BARRIER}", f"{_OTHER_BARRIER}|{EARLY}", "row_kernel", 1, 2),
        ("threads without a column leave out the sums", "column", "kernels/column.cuh", "end_sums", _COLUMN_SUMS,
         f"if (columns_.any()) {_COLUMN_SUMS}", f"{_EXITED}|{_OTHER_BARRIER}", "column_kernel", 0, 1),
        ("threads without a row leave the loop before the others", "few lanes", "kernels/row.cuh", "row_block",
         "base < end", "base + position.row < end", f"{_EXITED}|{_AT_BARRIER}|{_AT_SHUFFLE}", "row_kernel", 0, 1),
        ("only the first row takes a sum of partial results", "two_pass", "kernels/final_reduction.cuh",
         "collect_partials", _TOTAL, f"if (threadIdx.y == 0) {_TOTAL}", f"{EARLY}|{UNWRITTEN_SHARED}",
         "final_reduction_kernel", 0, 1),
    )
]  # fmt: skip

# Kernels of one schedule rely on the end of the one before as on a barrier.
LAUNCHES = [
    Mutant(f"not launched: {name}", run, file, within, old, "cudaSuccess", caught, kernel)
    for name, run, file, within, old, caught, kernel in (
        ("sums of columns", "two_pass", _PASSES, "reduce", "over_memory<kPass>()", UNWRITTEN, "final_reduction_kernel"),
        ("their end", "two_pass", _PASSES, "reduce", "finish_partials<kPass>()", UNWRITTEN, "pointwise_kernel"),
        ("sums of groups", "segments", _PASSES, "reduce",
         "launch_row_reduction<kPass, kVec, kPacked>(p_, context_)", UNWRITTEN,
         "pointwise_kernel"),
        ("the end of the last pass' sums", "pointwise", _TWO_PASS, "launch",
         "passes_.template finish_partials<kLast>()", nan("grad_gemm_bias"), None),
        ("the end of a row kernel's sums", "short rows", "kernels/row_schedule.cuh", "launch_in_registers",
         "launch_final_reduction<kLast>(p, blocks, 0, 1, context().stream)", nan("grad_gemm_bias"), None),
        ("the sum over channels", "column", _PASSES, "reduce_channels", "launch_scalar_reduction(p_, context_.stream)",
         nan("grad_bias"), None),
        ("the results", "two_pass", _TWO_PASS, "launch", "passes_.template over_memory<kLast>()", nan("y"), None),
    )
]  # fmt: skip

BARRIERS = [*REMOVED, *DIVERGENT, *LAUNCHES]
