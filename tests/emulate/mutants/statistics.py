"""Mean and variance of every kernel, wrong; what has to see that is in test_broken_moments.py."""

from __future__ import annotations

from tests.emulate.mutants.mutant import Mutant

_HIDDEN = "if (count == Acc(0)) return {Acc(0), Acc(0)};"
_SQUARE, _OF_SEGMENT = "square(distances[v])", "moments_over_segment(shared, total, count, length);"

# Where kernels are broken: the file, the function, what stands there and what then does.
STATISTICS = {
    name: Mutant(name, "", *rest, caught="")
    for name, *rest in (
        ("no shift", "reductions.cuh", None, "if (first) sum.shift = term;", ""),
        ("a mean that is a little off", "moments.cuh", "moments_of", "sums.shift + distance",
         "sums.shift * Acc(1.0001) + distance"),
        ("a shift that is not subtracted from the squares", "moments.cuh", "moments_of", "sums.sum * distance",
         "Acc(0)"),
        ("infinity less infinity", "moments.cuh", "without", "squares < Acc(INFINITY)", "true"),
        ("sums that are not finite count as none", "moments.cuh", "moments_of", _HIDDEN,
         _HIDDEN.replace(")) r", ") || !(sums.squares <= Acc(1e30))) r")),
        ("a thread of a tile without rows counts", "kernels/column.cuh", "run",
         "own > 0 ? Acc((own + blockDim.y - 1) / blockDim.y) : Acc(0)", "Acc(1)"),
        ("a thread of a slice without rows counts", "kernels/l2_sums.cuh", "leave_l2_sums",
         "own > 0 ? Acc((own + kRowsPerIteration - 1) / kRowsPerIteration) : Acc(0)", "Acc(1)"),
        ("a thread of a block without rows counts", "kernels/pointwise.cuh", None,
         "own > 0 ? Acc(mine - lacks(last, v)) : Acc(0)", "Acc(1)"),
        ("a difference of squares", "kernels/row_totals.cuh", "moments_in_registers", _SQUARE,
         "value[i][v] * value[i][v] - moments.mean * moments.mean"),
        ("half of a row's squares", "kernels/row_totals.cuh", "moments_in_registers", _SQUARE, f"{_SQUARE} / 2"),
        ("a row's mean that is a little off", "kernels/row_totals.cuh", "moments_in_registers", _SQUARE,
         "square(value[i][v] - moments.mean * Acc(1.0001))"),
        ("the rest of the distances stays", "kernels/row_totals.cuh", "moments_in_registers",
         "correct(moments, rest, counts.inverse_part);", ""),
        ("half of a segment's squares", "kernels/row_reduction.cuh", "sums_over_segment", _OF_SEGMENT,
         f"{_OF_SEGMENT} total.m2 /= 2;"),
        ("a variance that is not finite is none", "moments.cuh", "correct", "m2 < Acc(0) ? Acc(0) : m2",
         "m2 >= Acc(0) && m2 < Acc(1e30) ? m2 : Acc(0)"),
    )
}  # fmt: skip
