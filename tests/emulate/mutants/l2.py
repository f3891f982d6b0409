"""What the blocks of the L2-resident kernel tell each other, in which order they come, and what each of them does."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import BLOCKS, EARLY, Mutant, nan, wrong

_L2, _LAUNCH, _STEPS = "kernels/l2.cuh", "kernels/l2_launch.cuh", "l2_steps.cuh"
_FOR_EVER = "waits until a counter is"
_UNSET = "a counter that nothing has set"


def _mutant(name, old, new, caught, within=None, file=_L2, run="l2", nth=0, of=1):
    where = f"{within}: " if within else ""
    kernel = None if "(?=" in caught else "l2_kernel"  # a verdict on results names no kernel
    return Mutant(f"L2, {where}{name}", run, file, within, old, new, caught, kernel, nth, of)


WAITS = [
    _mutant("no barrier before others are told", "__syncthreads();", NOTHING, BLOCKS, "count_part", _STEPS),
    _mutant("who waits does not tell the others", "__syncthreads();", NOTHING, BLOCKS, "wait_for_parts", _STEPS),
    _mutant("nobody is told", "emulate::add_and_release(counter);", NOTHING, _FOR_EVER, "count_part", _STEPS),
    _mutant("nobody waits", "emulate::acquire_from(counter, unsigned(parts));", NOTHING, BLOCKS, "wait_for_parts",
            _STEPS),
    _mutant("sums are not told of", "count_part(counter);", NOTHING, _FOR_EVER, nth=1, of=2),
    _mutant("the end of sums is not told of", "count_part(counter);", NOTHING, _FOR_EVER, nth=0, of=2),
    _mutant("sums end before they are there", "wait_for_parts(counter, slices);", NOTHING, BLOCKS),
    _mutant("sums end before all are there", "wait_for_parts(counter, slices)", "wait_for_parts(counter, slices - 1)",
            BLOCKS),
    _mutant("results before the end of sums", "wait_for_parts(counter, parts);", NOTHING, BLOCKS),
    _mutant("results before the end of all sums", "slices + kVec", "slices + kVec - 1", BLOCKS),
    _mutant("results once the sums are there", "slices + kVec", "slices", BLOCKS),
    _mutant("what may be written is read before", "load_l2_channels<1, true>(p, slice.columns, known);",
            "static_cast<void>(known);", wrong("y")),
    _mutant("the counter of other columns", "counters + task.tile", "counters", f"{_FOR_EVER}|{BLOCKS}"),
    _mutant("counters are not cleared", "fill(counters, 0, shape.tiles, stream)", "cudaSuccess", _UNSET,
            file=_LAUNCH),
    _mutant("one counter is cleared", "fill(counters, 0, shape.tiles, stream)",
            "fill(counters, 0, 1, stream)", _UNSET, file=_LAUNCH),
]  # fmt: skip

_SUMS = "if (place >= 0 && place % 2 == 0) task = {L2Work::kSums, step, place / 2};"
_RESULTS = "if (place >= 0 && place % 2 == 1) task = {L2Work::kResults, step - lag, place / 2};"
TURNS = [
    _mutant(name, old, new, caught, "l2_task", _STEPS)
    for name, old, new, caught in (
        ("sums end before they are taken", "step - 1", "step", _FOR_EVER),
        ("only some of the columns' sums end", "place + ends", "0", BLOCKS),
        ("results before sums", _RESULTS, _RESULTS.replace("step - lag", "step"), _FOR_EVER),
        ("results of columns further behind", _RESULTS, _RESULTS.replace("- lag", "- lag - 1"), nan("y")),
        ("only the first slice's sums", _SUMS, _SUMS.replace("place / 2}", "0}"), BLOCKS),
        ("only the first slice's results", _RESULTS, _RESULTS.replace("place / 2}", "0}"), BLOCKS),
        ("columns that are not there", "task.tile >= tiles", "task.tile > tiles", _UNSET),
    )
]

_LAST = "first + kL2Rows < p.rows ? first + kL2Rows : int(p.rows)"
_NEXT = "load_l2_rows<1>(p, slice, row + kBatch * kRowsPerIteration, in);"
PARTS = [
    _mutant("a row of each slice is left out", _LAST, f"({_LAST}) - 1", nan("y")),
    _mutant("the columns of the first tile", "int64_t(task.tile) * kWidth * kVec", "int64_t(0)", BLOCKS),
    _mutant("the ends of the first columns", "(int64_t(task.tile) * kVec + task.part) * kWidth",
            "int64_t(task.tile) * kVec * kWidth", BLOCKS),
    _mutant("the last slice is a full one", "p.rows - threadIdx.y * kL2Rows", "kL2Rows", wrong("y")),
    _mutant("further slices are where the first ones are", "kL2RowsPerIteration<P, kVec> * kL2Rows", "0", wrong("y"),
            run="l2, many rows"),
    # Forward a slice has no others.
    _mutant("the rows behind the first ones are not brought", _NEXT, NOTHING, wrong("grad_matmul_product")),
    _mutant("the shift is another value", "at == first", "at != first", wrong("y"), "sum_l2_slice",
            run="l2, far from zero"),
]  # fmt: skip

_SHUFFLE = "__shfl_xor_sync(kAllLanes, {}, offset)"
_MEAN, _M2, _COUNT = map(_SHUFFLE.format, ("moments[v].mean", "moments[v].m2", "count"))
_SUM = _SHUFFLE.format("arrays[i / N][i % N]")
SUMS = [
    *(
        _mutant("sums of a block before all are there", "__syncthreads();", NOTHING, EARLY, within, _STEPS)
        for within in ("leave_sums", "leave_moments")
    ),
    *(
        _mutant(name, old, new, wrong("grad_matmul_product"), "sum_over_rows_of_warp", "reduce_columns.cuh")
        for name, old, new in (
            ("sums of other lanes", _SUM, _SUM.replace("offset", "offset / 2")),
            ("half of the lanes", "offset >= int(blockDim.x)", "offset > int(blockDim.x)"),
        )
    ),
    *(
        _mutant(name, old, new, wrong(result), within, _STEPS)
        for name, within, old, new, result in (
            ("a warp is left out", "leave_sums", "warp < kL2Warps", "warp < kL2Warps - 1", "grad_matmul_product"),
            ("means of other lanes", "leave_moments", _MEAN, _MEAN.replace("offset", "offset / 2"), "y"),
            ("squares of other lanes", "leave_moments", _M2, _M2.replace("offset", "offset / 2"), "y"),
            ("half of the lanes", "leave_moments", "offset >= int(blockDim.x)", "offset > int(blockDim.x)", "y"),
            ("distances of means are none", "leave_moments", "count * share * distance * distance", "Acc(0)", "y"),
            ("distances of a warp's mean are none", "leave_moments", "shared[w] * distance * distance", "Acc(0)", "y"),
            ("a warp's squares are left out", "leave_moments", "m2s[w * columns + column]", "Acc(0)", "y"),
            ("the first warp's mean", "leave_moments", "correct(all, distances, Acc(1) / total);", NOTHING, "y"),
        )
    ),
    _mutant("the sums of one array only", "i / N * width * N + i % N", "i % N", EARLY, "leave_sums", _STEPS),
    _mutant("counts are alike", _COUNT, "count", wrong("y"), "leave_moments", _STEPS, "l2, far from zero"),
    *(
        _mutant("columns that are not there", "column < partials.columns", "true", f"{BLOCKS}|writes global memory",
                within, _STEPS)
        for within in ("leave_sums", "leave_moments")
    ),
]  # fmt: skip

L2 = [*WAITS, *TURNS, *PARTS, *SUMS]
