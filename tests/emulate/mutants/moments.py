"""Moments around the wrong value or of the wrong number of values, and sums that start from anything but 0."""

from __future__ import annotations

from tests.emulate.mutants.mutant import HEADER_OF, Mutant, nan, wrong

_COLUMN, _POINTWISE, _FINAL = "kernels/column.cuh", "kernels/pointwise.cuh", "kernels/final_reduction.cuh"
_VALUES, _REDUCTION = "kernels/row_totals.cuh", "kernels/row_reduction.cuh"
_BOTH = wrong("y", "bn_running_var")
_ROWS = "(own + blockDim.y - 1) / blockDim.y"
_LACKS = "lacks(last, v)"
_FIRST = "u == 0 && tile == begin + threadIdx.y"


def _mutants(file, cases):
    return [
        Mutant(
            f"{within}, {run}: {name}",
            run,
            file or HEADER_OF[within],
            within,
            old,
            new,
            caught,
            None,
            *(rest or (0, 1)),
        )
        for name, within, run, old, new, caught, *rest in cases
    ]


SHIFTS = [
    *_mutants("reductions.cuh", (
        ("no shift", None, "far from zero", "if (first) sum.shift = term;", "", _BOTH),
        ("no shift", None, "far from zero, two_pass", "if (first) sum.shift = term;", "", _BOTH),
    )),
    *_mutants(_COLUMN, (
        ("every row is a shift", "use_row", "column", "here.at == begin_.at", "true", _BOTH),
        ("a thread counts a row less", "run", "column", _ROWS, "own / blockDim.y", _BOTH),
        ("every thread counts all rows", "run", "column", f"Acc({_ROWS})", "Acc(own)", _BOTH),
        ("the first row for another", "run_passes", "column", "tiles_.template fetched<kField, E>() + here.at",
         "tiles_.template fetched<kField, E>() + begin_.at", wrong("y", "bn_running_mean")),
    )),
    *_mutants(_POINTWISE, (
        ("every row is a shift", None, "two_pass", _FIRST, _FIRST.removeprefix("u == 0 && "), _BOTH),
        ("a thread counts a row less", None, "two_pass", _ROWS, "own / blockDim.y", _BOTH),
        ("every thread counts all rows", None, "two_pass", f"Acc(mine - {_LACKS})", "Acc(own)", _BOTH),
        ("the first row for another", None, "two_pass", "in[u]", "in[0]", wrong("y", "bn_running_mean"), 1, 2),
    )),
]  # fmt: skip

PARTS = _mutants(None, (
    ("the shift's distance stays", "moments_of", "column", "sums.sum * distance", "Acc(0)", _BOTH),
    ("the shift's distance stays", "moments_of", "two_pass", "sums.sum * distance", "Acc(0)", _BOTH),
    ("the shift is the mean", "moments_of", "two_pass", "sums.shift + distance", "sums.shift",
     wrong("y", "bn_running_mean")),
    ("no rows", "moments_of", "few rows", "if (count == Acc(0)) return {Acc(0), Acc(0)};", "", nan("y")),
    ("each thread has one value", "moments_of_parts", "column", "distances[v] * distance", "distance * distance",
     _BOTH),
    ("the rest of one thread's distances", "moments_of_parts", "column", "sum(m2, distances);", "sum(m2);",
     wrong("y", "bn_running_mean")),
    ("each warp has one value", "moments_of_parts", "long rows", "distances[v] * distance", "distance * distance",
     wrong("y")),
    ("each thread has one value", "moments_of_parts", "segments", "distances[v] * distance", "distance * distance",
     wrong("y")),
    ("as many values as the first warp", "moments_over_warps", "long rows", "counts[warp]", "counts[0]", wrong("y")),
    ("a warp less", "moments_over_warps", "long rows", "warp < warp_count()", "warp + 1 < warp_count()", wrong("y")),
    ("the counts are not of its values", "moments_over_warps", "long rows", "return inverse_count;",
     "return inverse_count * Acc(2);", wrong("y")),
    ("the value for its distance", "add_value", "far from zero", "sums.squares += distance * distance;",
     "sums.squares += distance * value;", _BOTH),
    ("each block has one value", "add_values", "more odd rows, two_pass", "sums.sum += count * distance",
     "sums.sum += distance", wrong("y", "bn_running_mean")),
    ("without the distance of the means", "add_values", "more odd rows, two_pass", "count * distance * distance",
     "Acc(0)", _BOTH),
    ("the means alone", "add_values", "more rows, two_pass", "part.m2 + count * distance * distance",
     "count * distance * distance", _BOTH),
))  # fmt: skip

# How many rows each partial result is of.
ROWS = _mutants(_FINAL, (
    ("the last block counts rows that it lacks", None, "two_pass",
     "left < rows_of_one ? left : rows_of_one", "rows_of_one", _BOTH),
    ("the last tile's rows are all there", None, "odd, two_pass", "row < p.rows - full_tiles * period", "true", _BOTH),
    ("the last tile's rows are all missing", None, "odd, two_pass", "row < p.rows - full_tiles * period", "false",
     _BOTH),
    ("a row of a tile for a block", None, "more odd rows, two_pass", "threadIdx.y / period * tiles_per_block",
     "threadIdx.y * tiles_per_block", _BOTH),
    ("all threads begin with the first block", None, "two odd blocks, two_pass",
     "threadIdx.y / period * tiles_per_block", "0", _BOTH),
    ("a thread has results of tiles that follow each other", None, "more odd rows, two_pass", "blockDim.y / period",
     "blockDim.y", _BOTH),
    ("all partial results of a thread are of one block", None, "more odd rows, two_pass", "left -= stride;", "", _BOTH),
))  # fmt: skip

SEGMENT = [
    *_mutants(_REDUCTION, (
        ("every vector has a shift", None, "longer segments", "seen == 0", "true", wrong("y")),
        ("no shift", None, "longer segments, far from zero", "seen == 0", "false", wrong("y")),
        ("a vector has one value", None, "longer segments", "seen += columns[u].size();", "++seen;", wrong("y")),
        ("a thread counts one value more", None, "segments", "Acc(seen)", "Acc(seen + 1)", wrong("y")),
    )),
    *_mutants(_VALUES, (
        ("a warp has as many values as the group", "row_counts", "long rows",
         "inverse_part = part > Acc(0) ? Acc(1) / part : Acc(0);", "inverse_part = inverse_length;", wrong("y")),
        ("a warp has full vectors", "row_counts", "long odd rows", "columns[i].size()",
         "(columns[i].any() ? 4 : 0)", wrong("y")),
        ("lanes without an element count", "moments_in_registers", "short rows",
         "if (active) moments.m2 += sum_of(squares);", "moments.m2 += sum_of(squares);", wrong("y")),
    )),
]  # fmt: skip

# No kernel takes a maximum or minimum over elements: what a sum or a count starts from is 0 everywhere.
IDENTITIES = [
    *_mutants(_COLUMN, (
        ("a count without rows is one", "run", "few rows", "Acc(0)", "Acc(1)", _BOTH),
    )),
    *_mutants(_POINTWISE, (
        ("a count without rows is one", "pointwise_kernel", "few rows, two_pass", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_mean")),
    )),
    *_mutants(_FINAL, (
        ("a count of partial moments starts at one", "collect_partials", "two_pass", "Acc(0)", "Acc(1)",
         wrong("y", "bn_running_mean"), 0, 3),
        ("a sum of partial results starts at one", None, "two_pass", "sum += part[0];", "sum += part[0] + Acc(1);",
         wrong("grad_bn_bias", "grad_bias")),
    )),
    # Not the sum for the mean: distances to any value are as good, for the rest of them is taken out again.
    *_mutants(_VALUES, (
        ("a rest of lanes starts at one", "moments_in_registers", "short rows", "Acc(0)", "Acc(1)", wrong("y"), 1, 3),
        ("squared distances start at one", "moments_in_registers", "short rows", "Acc(0)", "Acc(1)", wrong("y"), 0, 3),
    )),
]  # fmt: skip

MOMENTS = [*SHIFTS, *PARTS, *ROWS, *SEGMENT, *IDENTITIES]
