"""Mistakes around the tensor core: in the kernels that split a matrix, and in those that make a product good."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import EARLY, RACE, Mutant

_SPLIT, _RECHECK, _LANES = "contraction/split.cuh", "contraction/recheck.cuh", "reduce_lanes.cuh"
_BARRIER = "__syncthreads();"

CONTRACTION = [
    Mutant(name, run, file, within, old, new, caught, kernel, nth, of)
    for name, run, file, within, old, new, caught, kernel, nth, of in (
        ("largest of each lane alone", "rows", _LANES, "reduce_over_block", "reduce_in_warp<Op>(32, first, more...);",
         NOTHING, "wrong .*exponents", None, 0, 1),
        ("largest of each warp alone", "rows", _LANES, "reduce_over_warps",
         "reduce_in_warp<Op>(kMostWarps, first, more...);", NOTHING, "wrong .*exponents", None, 0, 1),
        ("lost over exponents that others still read", "rows", _LANES, "reduce_over_warps", _BARRIER, NOTHING, RACE,
         "split_rows", 0, 2),
        ("values before all warps have theirs", "rows", _LANES, "reduce_over_warps", _BARRIER, NOTHING, EARLY,
         "split_rows", 1, 2),
        ("lost of each thread alone", "rows", _SPLIT, "split_rows",
         "reduce_over_block<AddLost>(reinterpret_cast<unsigned*>(shared), lost);", NOTHING, "wrong lost", None, 0, 1),
        ("columns before all warps have theirs", "columns", _SPLIT, "reduce_columns_of_block", _BARRIER, NOTHING, EARLY,
         "largest_of_columns", 0, 1),
        ("an element of each lane's terms", "a row", _RECHECK, "recomputed_element",
         "sum_in_warp(32, sum);", NOTHING, "wrong result", None, 0, 1),
        ("terms over those that others still read", "many rows", _RECHECK, "recompute_tile", _BARRIER, NOTHING, RACE,
         "recheck_product", 0, 2),
        ("terms before they are there", "many rows", _RECHECK, "recompute_tile", _BARRIER, NOTHING, EARLY,
         "recheck_product", 1, 2),
        ("doubtful elements of the first lane alone", "a row", _RECHECK, "recheck_product",
         "sum_in_warp(32, count);", NOTHING, "wrong result", None, 0, 1),
        ("counts over those that others still read", "a row", _RECHECK, "recheck_product", _BARRIER, NOTHING, RACE,
         "recheck_product", 0, 2),
        ("counts before they are there", "a row", _RECHECK, "recheck_product", _BARRIER, NOTHING, EARLY,
         "recheck_product", 1, 2),
    )
]  # fmt: skip
