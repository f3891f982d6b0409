"""Sums of samples: which rows belong to one, where its partial results are, and who waits between two samples."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import BLOCKS, EARLY, RACE, UNWRITTEN, UNWRITTEN_SHARED, Mutant, nan, wrong

_ROW, _POINTWISE, _TILE = "kernels/row.cuh", "kernels/pointwise.cuh", "kernels/tile.cuh"
_REDUCTION, _PLANES = "kernels/sample_reduction.cuh", "kernels/plane_shared.cuh"
_LOADS = "set_samples<kPass>(p, columns, active, sample, known);"
_BARRIER = "__syncthreads();"
_ONE_PLACE = f"{BLOCKS}|{UNWRITTEN}"
_WRONG = f"{BLOCKS}|{wrong('grad_scale')}|{nan('grad_scale')}"

SAMPLES = [
    Mutant(f"samples: {name}", run, file, within, old, new, caught, None, nth, of)
    for name, run, file, within, old, new, caught, nth, of in (
        ("rows of the next sample", "row", _ROW, "row_kernel", "begin + rows", "begin + rows + 1", _WRONG, 0, 1),
        ("rows of the first sample", "row", _ROW, "row_kernel", "sample * rows", "sample * 0", _WRONG, 0, 1),
        ("all samples in one place", "row", _ROW, "row_kernel", "sample * shares + part", "part", _ONE_PLACE, 0, 1),
        ("the rows of the first sample", "pointwise", _POINTWISE, None, "origin = sample * rows;", NOTHING, _WRONG, 0,
         1),
        ("the sums of the sample before", "pointwise", _POINTWISE, None, f"sums = {{}}; {_LOADS}", _LOADS, _WRONG, 0,
         1),
        ("all samples in one place", "pointwise", _POINTWISE, None, "sample * shares + part", "part", _ONE_PLACE, 0, 1),
        ("the sums of the image before", "tile", _TILE, "run", "sums_ = {};", NOTHING, _WRONG, 0, 1),
        ("all images in one place", "tile", _TILE, "run", "image * shares + part", "part", _ONE_PLACE, 0, 1),
        ("a tile over sums that others read", "tile", _TILE, "run", _BARRIER, NOTHING, EARLY, 0, 1),
        ("a warp's sum over one that others read", "planes", _PLANES, "sum_over_some_warps", _BARRIER, NOTHING, RACE,
         0, 2),
        ("sums of warps that are not there yet", "planes", _PLANES, "sum_over_some_warps", _BARRIER, NOTHING, EARLY,
         1, 2),
        ("nothing is waited for", "planes", _PLANES, "run_from", "wait_for_rows<kPlaneSharedDepth - 1>();", NOTHING,
         UNWRITTEN_SHARED, 0, 1),
        ("a vector does not end", "planes", _PLANES, "fetch", "end_row();", NOTHING, UNWRITTEN_SHARED, 0, 1),
        ("a vector less", "planes", _PLANES, "run_from", "index < vectors_", "index < vectors_ - 1",
         "exits with a copy", 0, 1),
        ("all samples in one place", "planes", _PLANES, "place", "sample_ * p_.channels + channel_", "channel_",
         _ONE_PLACE, 0, 1),
        ("a partial result less", "row", _REDUCTION, None, "partials * length", "partials * length - 1",
         _WRONG, 0, 1),
        ("the first sample for all", "row", _REDUCTION, None, "sample * p.channels + channel", "channel",
         _ONE_PLACE, 0, 1),
    )
]  # fmt: skip
