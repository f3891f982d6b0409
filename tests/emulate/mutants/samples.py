"""Sums of samples: which rows belong to one, where its partial results are, and who waits between two samples."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import BLOCKS, EARLY, UNWRITTEN, Mutant, nan, wrong

_ROW, _POINTWISE, _TILE = "kernels/row.cuh", "kernels/pointwise.cuh", "kernels/tile.cuh"
_REDUCTION = "kernels/sample_reduction.cuh"
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
        ("a partial result less", "row", _REDUCTION, None, "partials * length", "partials * length - 1",
         _WRONG, 0, 1),
        ("the first sample for all", "row", _REDUCTION, None, "sample * p.channels + channel", "channel",
         _ONE_PLACE, 0, 1),
    )
]  # fmt: skip
