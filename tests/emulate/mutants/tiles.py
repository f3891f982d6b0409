"""Tiles that go through shared memory: who waits for whom, and what is copied."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import EARLY, UNWRITTEN_SHARED, Mutant

_TILE, _ARRAYS = "kernels/tile.cuh", "kernels/tile_arrays.cuh"
_BARRIER = "__syncthreads();"
_COPY = "__pipeline_memcpy_async(word + w, source + w, sizeof(*word));"

TILES = [
    Mutant(f"tiles: {name}", run, file, within, old, NOTHING, caught, "tile_kernel", nth, of)
    for name, run, file, within, old, caught, nth, of in (
        ("the next tile over one that others still read", "several tiles", _TILE, None, f"if (left > 1) {_BARRIER}",
         EARLY, 0, 1),
        ("copies do not end", "a tile", _TILE, "run_tile", "end_row();", UNWRITTEN_SHARED, 0, 1),
        ("no copy is waited for", "a tile", _TILE, "run_tile", "wait_for_rows<0>();", UNWRITTEN_SHARED, 0, 1),
        ("computed before all threads have copied", "a tile", _TILE, "run_tile", _BARRIER, EARLY, 0, 2),
        ("stored before all threads have computed", "a tile", _TILE, "run_tile", _BARRIER, EARLY, 1, 2),
        ("the end of a channel is nobody's", "odd", _ARRAYS, "each_shifted",
         "elements(tiles_.size() - before, tiles_.size());", UNWRITTEN_SHARED, 0, 1),
        ("no vector begins before the tile", "odd", _ARRAYS, "each_shifted", "elements(first, first + kVec);",
         UNWRITTEN_SHARED, 0, 1),
        ("nothing is copied", "a tile", _ARRAYS, "bring_aligned", _COPY, UNWRITTEN_SHARED, 0, 1),
    )
]  # fmt: skip
