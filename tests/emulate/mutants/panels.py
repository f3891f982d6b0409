"""What the blocks of a panel kernel tell each other, in which order they come, and what each of them does."""

from __future__ import annotations

from tests.emulate.mutants.mutant import BLOCKS, EARLY, Mutant, nan, wrong

_FORWARD, _BACKWARD = "train_forward_panel", "train_backward_panel"
NOTHING = "static_cast<void>(0);"
_FOR_EVER = "waits until a counter is"


def _mutant(name, old, new, caught, within=_FORWARD, kernel=_FORWARD, run="panels", file="kernels.cu", nth=0, of=1):
    return Mutant(f"panels, {within}: {name}", run, old, new, caught, within, kernel, file, nth, of)


def _of_both(name, old, new, caught, **others):
    return [_mutant(name, old, new, caught, kernel, kernel, **others) for kernel in (_FORWARD, _BACKWARD)]


WAITS = [
    _mutant("no barrier before others are told", "__syncthreads();", NOTHING, BLOCKS, "count_part", None,
            file="panels.cuh"),
    _mutant("who waits does not tell the others", "__syncthreads();", NOTHING, BLOCKS, "wait_for_parts", None,
            file="panels.cuh"),
    _mutant("nobody is told", "emulate::add_and_release(counter);", NOTHING, _FOR_EVER, "count_part", None,
            file="panels.cuh"),
    _mutant("nobody waits", "emulate::acquire_from(counter, unsigned(parts));", NOTHING, BLOCKS, "wait_for_parts",
            None, file="panels.cuh"),
    *_of_both("sums are not told of", "count_part(counter);", NOTHING, _FOR_EVER, nth=1, of=2),
    *_of_both("the end of sums is not told of", "count_part(counter);", NOTHING, _FOR_EVER, nth=0, of=2),
    *_of_both("sums end before they are there", "wait_for_parts(counter, slices);", NOTHING, BLOCKS),
    *_of_both("sums end before all are there", "wait_for_parts(counter, slices)", "wait_for_parts(counter, slices - 1)",
              BLOCKS),
    *_of_both("results before the end of sums", "wait_for_parts(counter, slices + kVec);", NOTHING, BLOCKS),
    *_of_both("results before the end of all sums", "wait_for_parts(counter, slices + kVec)",
              "wait_for_parts(counter, slices + kVec - 1)", BLOCKS),
    *_of_both("results once the sums are there", "wait_for_parts(counter, slices + kVec)",
              "wait_for_parts(counter, slices)", BLOCKS),
    *_of_both("the counter of another panel", "counters + turn.panel", "counters", f"{_FOR_EVER}|{BLOCKS}"),
]  # fmt: skip

_UNSET = "a counter that nothing has set"
CLEARED = [
    Mutant(f"panels, {launcher}: {name}", "panels", old, new, _UNSET, launcher)
    for launcher in ("train_forward_launch", "train_backward_launch")
    for name, old, new in (
        ("counters are not cleared", "error = clear_counters(...);", NOTHING),
        ("one counter is cleared", "clear_counters(...)", "clear_counters(counters, 1, stream)"),
    )
]

_SUMS = "if (place >= 0 && place % 2 == 0) turn = {PanelWork::kSums, step, place / 2};"
_RESULTS = "if (place >= 0 && place % 2 == 1) turn = {PanelWork::kResults, step - lag, place / 2};"
TURNS = [
    _mutant(name, old, new, caught, "panel_turn", None, file="panels.cuh")
    for name, old, new, caught in (
        ("sums end before they are taken", "step - 1", "step", _FOR_EVER),
        ("only some of the columns' sums end", "place + ends", "0", BLOCKS),
        ("results before sums", _RESULTS, _RESULTS.replace("step - lag", "step"), _FOR_EVER),
        ("results of panels further behind", _RESULTS, _RESULTS.replace("- lag", "- lag - 1"), nan("y")),
        ("only the first slice's sums", _SUMS, _SUMS.replace("place / 2}", "0}"), BLOCKS),
        ("only the first slice's results", _RESULTS, _RESULTS.replace("place / 2}", "0}"), BLOCKS),
        ("panels that are not there", "turn.panel >= panels", "turn.panel > panels", _UNSET),
    )
]

PARTS = [
    _mutant("a row of each slice is left out", "first + kPanelRows < rows ? first + kPanelRows : int(rows)",
            "first + kPanelRows < rows ? first + kPanelRows - 1 : int(rows) - 1", nan("y"), kernel=None),
    _mutant("a row of each slice is left out", "first + kPanelRows < rows ? first + kPanelRows : int(rows)",
            "first + kPanelRows < rows ? first + kPanelRows - 1 : int(rows) - 1", nan("grad_matmul_product"),
            _BACKWARD, None),
    *_of_both("the columns of the first panel", "int64_t(turn.panel) * kWidth * kVec", "int64_t(0)", BLOCKS),
    *_of_both("the ends of the first columns", "(int64_t(turn.panel) * kVec + turn.part) * kWidth",
              "int64_t(turn.panel) * kVec * kWidth", BLOCKS),
    _mutant("the last slice is a full one", "rows - threadIdx.y * kPanelRows", "kPanelRows", wrong("y"),
            kernel=None),
    _mutant("further slices are where the first ones are", "kHeight * kPanelRows", "0", wrong("y"),
            kernel=None, run="panels, many rows"),
    _mutant("the rows behind the first ones are not brought", "load_rows(row + kBatch * kHeight);", NOTHING,
            wrong("grad_matmul_product"), _BACKWARD, None),
    _mutant("the pilot is another value", "at == first + int(threadIdx.y)", "at != first + int(threadIdx.y)",
            wrong("y"), kernel=None, run="panels, far from zero"),
]  # fmt: skip

_SHUFFLE = "__shfl_xor_sync(kAllLanes, {}, offset)"
_MEAN, _M2, _COUNT = map(_SHUFFLE.format, ("moments[v].mean", "moments[v].m2", "count"))
_SUM = _SHUFFLE.format("arrays[i / N][i % N]")
SUMS = [
    *(
        _mutant("sums of a block before all are there", "__syncthreads();", NOTHING, EARLY, function, kernel,
                file="panels.cuh")
        for function, kernel in (("leave_sums", _BACKWARD), ("leave_moments", _FORWARD))
    ),
    *(
        _mutant(name, old, new, wrong("grad_matmul_product"), "sum_over_rows_of_warp", None, file="reduce.cuh")
        for name, old, new in (
            ("sums of other lanes", _SUM, _SUM.replace("offset", "offset / 2")),
            ("half of the lanes", "offset >= int(blockDim.x)", "offset > int(blockDim.x)"),
        )
    ),
    *(
        _mutant(name, old, new, wrong(result), function, None, file="panels.cuh")
        for name, function, old, new, result in (
            ("a warp is left out", "leave_sums", "warp < kPanelWarps", "warp < kPanelWarps - 1", "grad_matmul_product"),
            ("means of other lanes", "leave_moments", _MEAN, _MEAN.replace("offset", "offset / 2"), "y"),
            ("squares of other lanes", "leave_moments", _M2, _M2.replace("offset", "offset / 2"), "y"),
            ("half of the lanes", "leave_moments", "offset >= int(blockDim.x)", "offset > int(blockDim.x)", "y"),
            ("distances of means are none", "leave_moments", "count * share * distance * distance", "Acc(0)", "y"),
            ("distances of a warp's mean are none", "leave_moments", "shared[w] * distance * distance", "Acc(0)", "y"),
            ("a warp's squares are left out", "leave_moments", "m2s[w * columns + column]", "Acc(0)", "y"),
            ("the first warp's mean", "leave_moments", "correct(all, distances, Acc(1) / total);", NOTHING, "y"),
        )
    ),
    _mutant("the sums of one array only", "i / N * width * N + i % N", "i % N", EARLY, "leave_sums", _BACKWARD,
            file="panels.cuh"),
    _mutant("counts are alike", _COUNT, "count", wrong("y"), "leave_moments", None, file="panels.cuh",
            run="panels, far from zero"),
    *(
        _mutant("columns that are not there", f"column < {columns}", "true", f"{BLOCKS}|writes global memory",
                function, None, file="panels.cuh")
        for function, columns in (("leave_sums", "partials.columns"), ("leave_moments", "partials.columns"))
    ),
]  # fmt: skip

PANELS = (*WAITS, *CLEARED, *TURNS, *PARTS, *SUMS)
