"""Shared memory that is too small, accessed beyond its ends, or used for two things at once."""

from __future__ import annotations

from tests.emulate.mutants.mutant import BEYOND_SHARED, EARLY, HEADER_OF, RACE, UNWRITTEN_SHARED, Mutant, wrong

_COLUMN, _CHANNELS, _LAUNCH = "kernels/column.cuh", "kernels/row_channels.cuh", "kernels/row_launch.cuh"
_IN_SHARED = "row.block.x * row_shared_bytes<kFirst, kVec>(p)"

# The launch gives a kernel as many bytes as it needs; some get more, and then it takes more than one element less.
TOO_SMALL = [
    Mutant(f"{run}: shared memory of {kernel} one element too small", run, file, None, old, new, BEYOND_SHARED, kernel)
    for kernel, run, file, old, new in (
        ("column_kernel", "column", "column_shapes.cuh", "size_t(tile + exchange + sums)",
         "size_t(tile + exchange + sums - 4)"),
        ("pointwise_kernel", "two_pass", "kernels/pointwise.cuh",
         "kPointwiseThreads * 2 * kVec * sizeof(typename P::Acc)",
         "(kPointwiseThreads * 2 * kVec - 1) * sizeof(typename P::Acc)"),
        ("pointwise_kernel", "pointwise", "kernels/pointwise.cuh",
         "kPointwiseThreads * 2 * kVec * sizeof(typename P::Acc)",
         "(kPointwiseThreads * kVec - 1) * sizeof(typename P::Acc)"),
        ("final_reduction_kernel", "two_pass", "kernels/final_reduction.cuh",
         "kFinalReductionThreads * 2 * sizeof(typename P::Acc)",
         "(kFinalReductionThreads / 2 - 1) * sizeof(typename P::Acc)"),
        ("scalar_reduction_kernel", "column", "kernels/scalar_reduction.cuh", "32 * sizeof(typename P::Acc)",
         "31 * sizeof(typename P::Acc)"),
        ("l2_kernel", "l2", "kernels/l2_launch.cuh", "(kComponents * shape.block.x * kVec + kMoments)",
         "(kComponents * shape.block.x * kVec + kMoments - 1)"),
        ("row_kernel", "long rows", _LAUNCH, "exchanged * sizeof(typename P::Acc)", "3 * sizeof(typename P::Acc)"),
        ("row_kernel", "short rows", _LAUNCH, "exchanged * sizeof(typename P::Acc)",
         "(exchanged - 1) * sizeof(typename P::Acc)"),
        ("row_kernel", "longest rows", _LAUNCH, _IN_SHARED, f"({_IN_SHARED} - 1)"),
        ("row_kernel", "longest rows, 16 bits", _LAUNCH, _IN_SHARED, f"({_IN_SHARED} - 1)"),
        ("row_reduction_kernel", "segments", "kernels/row_reduction.cuh",
         "kSegmentExchange * sizeof(typename P::Acc)", "39 * sizeof(typename P::Acc)"),
    )
]  # fmt: skip

_SUMS = "shared[warp * sums + (i / N * width + lane) * N + i % N]"
_OF_WARP = "shared[i * 32 + threadIdx.x / 32] = *values[i];"
_M2 = "shared[32 + threadIdx.x / 32] = moments.m2;"
_TO, _READ = "tiles_.template fetched<kField, E>() + next_.at", "tiles_.template read<kField, E>()[here.at]"

PLACES = [
    Mutant(name, run, file, within, old, new, caught, None if "(?=" in caught else kernel)
    for name, run, kernel, file, within, old, new, caught in (
        ("shared memory one element past the end", "two_pass", "pointwise_kernel", HEADER_OF["sum_over_y"],
         "sum_over_y", "shared[i] = total;",
         "shared[i] = total; if (i == sums - 1) shared[warp_count() * sums] = total;",
         r"writes byte 8192 of the block's 8192 bytes of shared memory \["),
        ("shared memory one element before the beginning", "segments", "row_reduction_kernel",
         HEADER_OF["reduce_over_warps"], "reduce_over_warps", _OF_WARP,
         "shared[i * 32 + int(threadIdx.x / 32) - 1] = *values[i];",
         r"writes byte -4 of the block's 264 bytes of shared memory \["),
        ("sums of a block in the tile before them", "column", "column_kernel", HEADER_OF["sum_over_y"], "sum_over_y",
         _SUMS, _SUMS.replace("]", " - 1]"), EARLY),
        ("another thread's element of the tile is written", "column", "column_kernel", _COLUMN, "fetch", _TO,
         _TO.replace("next_.at", "(next_.at ^ 1)"), EARLY),
        # By a thread without a column.
        ("another thread's element of the tile is read", "column", "column_kernel", _COLUMN, "run_passes", _READ,
         _READ.replace("here.at", "here.at ^ 1"), UNWRITTEN_SHARED),
        ("another row's element of the tile", "column", "column_kernel", _COLUMN, "run_passes", _READ,
         _READ.replace("here.at", "here.at ^ int(blockDim.x)"), f"{EARLY}|{wrong('y')}"),
        ("tiles that overlap by a row", "column", "column_kernel", "kernels/column_tiles.cuh", "cached",
         "elements * kBegin", "(elements - int(blockDim.x) * kVec) * kBegin", RACE),
        ("the sums of two arrays in one place", "long rows", "row_kernel", HEADER_OF["reduce_over_warps"],
         "reduce_over_warps", _OF_WARP,
         "shared[threadIdx.x / 32] = *values[i];", EARLY),
        ("means and squares of warps in one place", "long rows", "row_kernel", HEADER_OF["moments_over_warps"],
         "moments_over_warps", _M2,
         "shared[threadIdx.x / 32] = moments.m2;", EARLY),
        ("counts of warps where their moments are", "long rows", "row_kernel", "kernels/row.cuh", None,
         "shared + 32 * Passes::kExchanged", "shared", f"{RACE}|{EARLY}|{wrong('y')}"),
        ("a row of the tile that nothing has written", "column", "column_kernel", _COLUMN, "fetch", "next_.at < end_",
         "next_.at < end_ - int(blockDim.x)", UNWRITTEN_SHARED),
    )
]  # fmt: skip

_PLACE = "places[i * blockDim.x + threadIdx.x]"
_SUM_PLACE = "memory[(sum * kItems + i) * blockDim.x + threadIdx.x]"
_WEIGHTS = "if (present) place = load_constants(columns[i], from);"

# What the row kernel has of its columns in shared memory for long segments: each thread in its own places.
IN_SHARED = [
    Mutant(f"{run}: {name}", run, file, within, old, new, caught, None, *(rest or (0, 1)))
    for name, run, file, within, old, new, caught, *rest in (
        ("constants are nowhere", "longest rows", _CHANNELS, "load", _WEIGHTS, "", UNWRITTEN_SHARED),
        ("constants of the last vector for all", "longest rows", _CHANNELS, "each_place", _PLACE, "places[threadIdx.x]",
         wrong("y")),
        ("constants that overlap", "longest rows", _CHANNELS, "each_place", "kItems * blockDim.x",
         "(kItems - 1) * blockDim.x", f"{RACE}|{wrong('y')}"),
        ("a sum begins with anything", "longest rows, 16 bits", _CHANNELS, "clear", "put(i);", "", UNWRITTEN_SHARED),
        ("a sum is not given back", "longest rows, 16 bits", "kernels/row.cuh", None, "sums.put(i);", "",
         wrong("grad_gemm_bias")),
        ("a sum is not taken", "longest rows, 16 bits", "kernels/row.cuh", None, "sums.take(i);", "",
         wrong("grad_gemm_bias")),
        ("the sum of the last vector for all", "longest rows, 16 bits", _CHANNELS, "store", "take(i);", "",
         wrong("grad_gemm_bias")),
        ("a sum where another one is", "longest rows, 16 bits", _CHANNELS, None, _SUM_PLACE,
         "memory[i * blockDim.x + threadIdx.x]", wrong("grad_group_norm_bias")),
    )
]  # fmt: skip

SHARED = [*TOO_SMALL, *PLACES, *IN_SHARED]
