"""Rows and groups that do not begin at multiples of a vector: what of a vector exists, and whose it is."""

from __future__ import annotations

from tests.emulate.mutants.mutant import MISALIGNED, UNWRITTEN, Mutant, nan, wrong

_PAST = r", \d+ bytes past its end"
_BEFORE = r", \d+ bytes before its start"
_OTHERS = r"which (another|thread)"
_COLUMNS, _PACKS = "columns.cuh", "packs.cuh"
_WHOLE = "return load_pack(Columns<N, true>{0, 1, N}, from);"

# Single elements, of a tile of columns.
SINGLE = [
    Mutant(f"{run}: {name}", run, old, new, caught, within="columns_of", file=_COLUMNS)
    for name, run, old, new, caught in (
        ("a column past the end", "odd columns", "first + v * threads < end", "first + v * threads <= end",
         rf"{_PAST}|{_OTHERS}"),
        ("a column less", "odd columns", "first + v * threads < end", "first + v * threads + 1 < end",
         rf"{UNWRITTEN}|{nan('y')}"),
        ("neighbours", "odd columns", "return {first, threads, count};", "return {first, 1, count};",
         rf"{_OTHERS}|{nan('y')}"),
    )
]  # fmt: skip

# Lines of several rows, of a stream.
LINES = [
    Mutant(f"{run}: {name}", run, old, new, caught, within=within, file=file)
    for name, run, within, file, old, new, caught in (
        ("the end of the last line", "odd", None, _COLUMNS, "elements - line", "elements", rf"{_PAST}"),
        ("an element less of the last line", "odd", None, _COLUMNS, "elements - line", "elements - line - 1",
         nan("y")),
        ("the last line by vectors", "odd", "forward", "kernels.cu", "lines * length <= whole", "whole > 0",
         rf"reads .*{_PAST}"),
        ("the last line by nobody", "odd", "forward", "kernels.cu", "active && at < last",
         "active && at < last - 1", nan("y")),
        ("another thread's line", "odd, split", "train_forward_partials", "kernels.cu",
         "(threadIdx.y + blockDim.y - turn_of_begin)", "(threadIdx.y + blockDim.y)", wrong("y", "bn_running_mean")),
        ("the columns of the first row", "odd", None, _COLUMNS, "visit(v, whole, left)", "visit(v, whole, rest)",
         rf"{wrong('y')}|{UNWRITTEN}"),
        ("the first row's column for the next ones", "odd", None, _COLUMNS,
         "left = 0;", "", rf"{_PAST}|{_OTHERS}"),
        ("the first row's partial results for all", "odd, split", None, _COLUMNS, "++whole;", "",
         rf"{_OTHERS}|{UNWRITTEN}"),
        ("the rows of a line in one partial result", "odd, split", None, _PACKS,
         "block * period + row", "block * period", rf"{_OTHERS}|{UNWRITTEN}"),
        ("what does not exist has a mean", "odd, split", "train_forward_partials", "kernels.cu",
         "if (!here.has(v)) continue;", "", wrong("y", "bn_running_mean")),
        ("what does not exist counts", "odd, split", "train_forward_partials", "kernels.cu", "line == lines - 1",
         "false", wrong("y", "bn_running_mean")),
        ("a group of the line's first row for all", "odd segments", "forward_apply", "kernels.cu",
         "kPacked ? by_segment.quotient : quotient", "by_segment.quotient", wrong("y")),
        ("the groups of a row for a line", "odd segments", "forward_apply", "kernels.cu",
         "kPacked ? groups : period * groups", "groups", wrong("y")),
    )
]  # fmt: skip

# The vectors that a segment touches.
RAGGED = [
    Mutant(f"{run}: {name}", run, old, new, caught, within=within, file=file)
    for name, run, within, file, old, new, caught in (
        ("the element before a segment", "odd rows by vectors", "ragged", _COLUMNS, "(1u << low)", "(1u << low) / 2",
         rf"{_OTHERS}|{_BEFORE}|{_PAST}|{wrong('y')}"),
        ("the element behind a segment", "odd rows by vectors", "ragged", _COLUMNS, "end - first", "end + 1 - first",
         rf"{_OTHERS}|{_PAST}|{wrong('y')}"),
        ("a segment's last element is missing", "odd rows by vectors", "ragged", _COLUMNS, "end - first",
         "end - 1 - first", rf"{nan('y')}|{UNWRITTEN}"),
        ("vectors from where the segment begins", "odd rows by vectors", "segment_columns", _COLUMNS,
         "begin - (row + begin) % kVec", "begin", MISALIGNED),
        ("the last vector as a whole", "odd rows by vectors", None, _PACKS,
         f"if (row + columns.first + N <= whole) {_WHOLE}", f"if (row + columns.first < whole) {_WHOLE}",
         rf"reads .*{_PAST}"),
        ("what does not exist is stored", "odd rows by vectors", None, _PACKS, "if (columns.has(v)) to[v] = pack[v];",
         "to[v] = pack[v];", rf"{_OTHERS}|{_PAST}|{wrong('y')}"),
        ("distances of what does not exist", "odd rows", "forward_row", "kernels.cu",
         "columns[i].has(v) ? gemm_v - group_norm_moments_v.mean : Acc(0)", "gemm_v - group_norm_moments_v.mean",
         wrong("y")),
        ("sums of rows that begin elsewhere in a vector", "odd rows by vectors, one group", "backward_row",
         "kernels.cu", "kPacked || kRuns ? 1 : period", "1", wrong("grad_gemm_bias")),
        ("what does not exist of a segment", "odd segments", "forward_segments", "kernels.cu",
         "if (columns[u].has(v)) add_value(group_norm_moments_shifted, group_norm_moments_terms[v]);",
         "add_value(group_norm_moments_shifted, group_norm_moments_terms[v]);", rf"{wrong('y')}|{nan('y')}"),
        ("a group of a vector's first element for all", "odd segments", "forward_apply", "kernels.cu",
         "kEarly && segment[v] == segment[0]", "kEarly", wrong("y")),
        ("groups of the first row in the last line", "odd segments", "forward_apply", "kernels.cu",
         "take(here, at, values_of(at, 0), gemm_product_in);", "take(here, at, values_of(0, 0), gemm_product_in);",
         wrong("y")),
        ("a group of another row", "segments", "forward_apply", "kernels.cu",
         "take(packed, at, values[u], gemm_product_in[u]);", "take(packed, at, values[0], gemm_product_in[u]);",
         wrong("y")),
    )
]  # fmt: skip

# Neighbours, wherever they begin.
RUNS = [
    Mutant(f"odd rows: {name}", "odd rows", old, new, caught, within=within, file="runs.cuh")
    for name, within, old, new, caught in (
        ("a run's last element is missing", "row_columns", "int(left)", "int(left) - 1", rf"{nan('y')}|{UNWRITTEN}"),
        ("the element behind a segment", "row_columns", "end - first", "end + 1 - first",
         rf"{_OTHERS}|{_PAST}|{wrong('y')}"),
        ("elements behind the last one", None, "at + N <= size", "at < size", rf"reads .*{_PAST}"),
        ("what does not exist is stored", None, "if (columns.has(v)) to[v] = pack.element[v];",
         "to[v] = pack.element[v];", rf"{_OTHERS}|{_PAST}|{wrong('y')}"),
    )
]  # fmt: skip

# Where a segment begins in memory.
BEGINNINGS = [
    Mutant(f"{run}: {name}", run, "first * channels", new, caught, within="forward_row", of=2)
    for name, run, new, caught in (
        ("vectors of another row", "odd rows by vectors", "0 * channels", MISALIGNED),
        ("vectors of the block's first row for all", "odd rows by vectors, one group", "base * channels",
         rf"{MISALIGNED}|{nan('y')}"),
    )
]  # fmt: skip

ODD_SIZES = [*SINGLE, *LINES, *RAGGED, *RUNS, *BEGINNINGS]
