"""Rows and groups that do not begin at multiples of a vector: what of a vector exists, and whose it is."""

from __future__ import annotations

from tests.emulate.mutants.mutant import MISALIGNED, UNWRITTEN, Mutant, nan, wrong

_PAST = r", \d+ bytes past its end"
_BEFORE = r", \d+ bytes before its start"
_OTHERS = r"which (another|thread)"
_COLUMNS, _PACKS, _UNALIGNED = "columns.cuh", "packs.cuh", "unaligned.cuh"
_POINTWISE, _ROW, _REDUCTION = "kernels/pointwise.cuh", "kernels/row.cuh", "kernels/row_reduction.cuh"
_BY_VECTORS, _ONE_GROUP = "odd rows by vectors", "odd rows by vectors, one group"
_ALIGNED = "return load_pack(Columns<N, true>{0, 1, N}, from);"


def _mutants(cases):
    return [
        Mutant(f"{run}: {name}", run, file, within, old, new, caught, None, *(rest or (0, 1)))
        for name, run, file, within, old, new, caught, *rest in cases
    ]


# Single elements, of a tile of columns.
SINGLE = _mutants((
    ("a column past the end", "odd columns", _COLUMNS, "columns_of", "first + v * threads < end",
     "first + v * threads <= end", rf"{_PAST}|{_OTHERS}"),
    ("a column less", "odd columns", _COLUMNS, "columns_of", "first + v * threads < end",
     "first + v * threads + 1 < end", rf"{UNWRITTEN}|{nan('y')}"),
    ("neighbours", "odd columns", _COLUMNS, "columns_of", "return {first, threads, count};",
     "return {first, 1, count};", rf"{_OTHERS}|{nan('y')}"),
))  # fmt: skip

# Tiles of several rows.
TILES = _mutants((
    ("the end of the last tile", "odd", _COLUMNS, None, "elements - tile", "elements", rf"{_PAST}"),
    ("an element less of the last tile", "odd", _COLUMNS, None, "elements - tile", "elements - tile - 1", nan("y")),
    ("the last tile by vectors", "odd", _POINTWISE, None, "tiles * length > movable", "vector_end <= 0",
     rf"reads .*{_PAST}"),
    ("the last tile by nobody", "odd", _POINTWISE, None, "active && at < end", "active && at < end - 1", nan("y")),
    ("another thread's tile", "odd, two_pass", _POINTWISE, None, "(threadIdx.y + blockDim.y - owner)",
     "(threadIdx.y + blockDim.y)", wrong("y", "bn_running_mean")),
    ("the columns of the first row", "odd", _COLUMNS, None, "visit(v, now_quotient, now_remainder)",
     "visit(v, now_quotient, remainder)", rf"{wrong('y')}|{UNWRITTEN}"),
    ("the first row's column for the next ones", "odd", _COLUMNS, None, "now_remainder = 0;", "",
     rf"{_PAST}|{_OTHERS}"),
    ("the first row's partial results for all", "odd, two_pass", _COLUMNS, None, "++now_quotient;", "",
     rf"{_OTHERS}|{UNWRITTEN}"),
    ("the rows of a tile in one partial result", "odd, two_pass", _PACKS, None, "block * period + row",
     "block * period", rf"{_OTHERS}|{UNWRITTEN}"),
    ("what does not exist has a mean", "odd, two_pass", _POINTWISE, None, "if (!here.has(v)) continue;", "",
     wrong("y", "bn_running_mean")),
    ("what does not exist counts", "odd, two_pass", _POINTWISE, None, "tile == tiles - 1", "false",
     wrong("y", "bn_running_mean")),
    ("a group of the tile's first row for all", "odd segments", _POINTWISE, None,
     "kPacked ? by_group.quotient : quotient", "by_group.quotient", wrong("y")),
    ("the groups of a row for a tile", "odd segments", _POINTWISE, None, "kPacked ? p.groups : period * p.groups",
     "p.groups", wrong("y")),
    ("a group of a vector's first element for all", "odd segments", _POINTWISE, None,
     "(!kGroups || group_of[v] == group_of[0])", "true", wrong("y")),
    ("a vector of two groups as of one", "odd segments", _POINTWISE, None, "group_of[0] == group_of[kVec - 1]", "true",
     wrong("y")),
    ("groups of the first row in the last tile", "odd segments", _POINTWISE, None, "values_of(at, 0)",
     "values_of(0, 0)", wrong("y"), 1, 2),
    ("a group of another row", "segments", _POINTWISE, None, "values[u]", "values[0]", wrong("y"), 1, 2),
))  # fmt: skip

# The vectors that a segment touches.
RAGGED = _mutants((
    ("the element before a segment", _BY_VECTORS, _COLUMNS, "masked_vector", "(1u << low)", "(1u << low) / 2",
     rf"{_OTHERS}|{_BEFORE}|{_PAST}|{wrong('y')}"),
    ("the element behind a segment", _BY_VECTORS, _COLUMNS, "masked_vector", "end - first", "end + 1 - first",
     rf"{_OTHERS}|{_PAST}|{wrong('y')}"),
    ("a segment's last element is missing", _BY_VECTORS, _COLUMNS, "masked_vector", "end - first", "end - 1 - first",
     rf"{nan('y')}|{UNWRITTEN}"),
    ("vectors from where the segment begins", _BY_VECTORS, _COLUMNS, "segment_columns",
     "begin - (row + begin) % kVec", "begin", MISALIGNED),
    ("the last vector without its mask", _BY_VECTORS, _PACKS, None,
     f"if (row + columns.first + N <= vector_end) {_ALIGNED}",
     f"if (row + columns.first < vector_end) {_ALIGNED}", rf"reads .*{_PAST}"),
    ("what does not exist is stored", _BY_VECTORS, _PACKS, None, "if (columns.has(v)) to[v] = pack[v];",
     "to[v] = pack[v];", rf"{_OTHERS}|{_PAST}|{wrong('y')}"),
    ("distances of what does not exist", "odd rows", "kernels/row_totals.cuh", "moments_in_registers",
     "columns[i].has(v) ? value[i][v] - moments.mean : Acc(0)", "value[i][v] - moments.mean", wrong("y")),
    ("sums of rows that begin elsewhere in a vector", _ONE_GROUP, _ROW, None,
     "kColumnSums == 0 || kPacked || kUnaligned ? 1 : g.period", "1", wrong("grad_gemm_bias")),
    ("what does not exist of a segment", "odd segments", _REDUCTION, None,
     "if (columns[u].has(v)) add_value(sum, all[v]);", "add_value(sum, all[v]);", rf"{wrong('y')}|{nan('y')}"),
    ("vectors of another row", _BY_VECTORS, _ROW, None, "first * p.channels", "0 * p.channels", MISALIGNED, 0, 2),
    ("vectors of the block's first row for all", _ONE_GROUP, _ROW, None, "first * p.channels", "base * p.channels",
     rf"{MISALIGNED}|{nan('y')}", 0, 2),
))  # fmt: skip

# Neighbours, wherever they begin: single elements of 4 bytes, and words of two elements of 2 bytes.
RUNS = _mutants((
    ("a vector's last element is missing", "odd rows", _UNALIGNED, "row_columns", "int(left)", "int(left) - 1",
     rf"{nan('y')}|{UNWRITTEN}"),
    ("the element behind a segment", "odd rows", _UNALIGNED, "row_columns", "end - first", "end + 1 - first",
     rf"{_OTHERS}|{_PAST}|{wrong('y')}"),
    ("elements behind the last one", "odd rows", _UNALIGNED, None, "at + N <= size", "at < size", rf"reads .*{_PAST}"),
    ("what does not exist is stored", "odd rows", _UNALIGNED, None, "if (columns.has(v)) to[v] = pack.element[v];",
     "to[v] = pack.element[v];", rf"{_OTHERS}|{_PAST}|{wrong('y')}"),
))  # fmt: skip

ODD_SIZES = [*SINGLE, *TILES, *RAGGED, *RUNS]
