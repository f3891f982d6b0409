"""Split products on the emulator: a matrix with its pieces, and the structs that launchers take."""

from __future__ import annotations

import ctypes

import numpy as np
import torch

from fusegen.emulate import Buffer, EmulatedLibrary
from fusegen.numerics.pieces import LARGEST
from fusegen.paths import templates_directory
from fusegen.runtime.structs import Struct

CONTRACTION = templates_directory() / "support" / "contraction" / "contraction.cu"
# A GPU of one cluster, whose blocks have all tiles one after the other.
ONE_CLUSTER = "FUSEGEN_EMULATED_MULTIPROCESSORS=2"


class PiecesLayout(ctypes.Structure):
    """As in contraction.h."""

    _fields_ = [("rows", ctypes.c_int64), ("columns", ctypes.c_int64), ("by_columns", ctypes.c_bool)]


class SplitProduct(ctypes.Structure):
    """As in contraction.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "rows", "channels", "in_features")),
        *((name, ctypes.c_void_p) for name in ("left", "right", "left_pieces", "right_pieces", "result", "stream")),
        ("row_invariant", ctypes.c_int64),
    ]


class Emulated:
    """A matrix and its pieces as fusegen_split() has written them."""

    def __init__(
        self, library: EmulatedLibrary, values: np.ndarray, by_columns: bool = False, folded: Emulated | None = None
    ) -> None:
        rows, columns = values.shape
        stride, scales = -(-columns // 8) * 8, columns if by_columns else rows
        plane = rows * stride
        self.layout = Struct(PiecesLayout, {"rows": rows, "columns": columns, "by_columns": by_columns})
        self.values = Buffer.from_tensor(torch.from_numpy(values), readonly=True)
        # Not poisoned: integers of the pieces look like poison, such as an exponent of -1.
        self.pieces = Buffer.from_tensor(torch.full((2 * (plane + 2 * scales + 2),), 1.5, dtype=torch.float16))
        others = (None, None) if folded is None else (folded.pieces, folded.layout)
        library.call("fusegen_split", self.values, self.layout, *others, self.pieces, None)
        halves = self.pieces.tensor().numpy()
        self.padding = halves[: 2 * plane].reshape(2 * rows, stride)[:, columns:]
        self.high, self.low = (halves[at : at + plane].reshape(rows, stride)[:, :columns] for at in (0, plane))
        words = halves[2 * plane :].view(np.int32)
        # Kernels write the exponents of the largest elements, and far less than any for a row without one.
        largest, self.lost = words[:scales], words[scales : 2 * scales]
        self.exponents = np.where(largest < -1000, 0, LARGEST - largest)


def product_of(kind: int, sizes: tuple[int, int, int], left: Emulated, right: Emulated, result: Buffer) -> Struct:
    """sizes: rows, channels and in_features."""
    pointers = {"left": left.values, "right": right.values, "left_pieces": left.pieces, "right_pieces": right.pieces}
    named = dict(zip(("rows", "channels", "in_features"), sizes, strict=True))
    members = {"kind": kind, **named, **pointers, "result": result, "stream": None, "row_invariant": 0}
    return Struct(SplitProduct, members)


def hostile(rows: int, columns: int, seed: int) -> np.ndarray:
    """All magnitudes, zeros of both signs, subnormal numbers, infinities and NaN in some rows."""
    source = np.random.default_rng(seed)
    values = source.standard_normal((rows, columns)) * 2.0 ** source.integers(-30, 5, (rows, columns))
    values[1::4] *= 2.0 ** source.integers(-140, 120, (len(values[1::4]), 1))
    values[source.random(values.shape) < 0.05] = 0
    values[2::8, 3] = np.inf
    values[3::8, 5] = np.nan
    values[7::8] = -0.0
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def check_product(found: np.ndarray, expected: np.ndarray, scale: np.ndarray) -> None:
    """scale: of the sums of the absolute values. Where only float32 overflows, anything may come of it."""
    with np.errstate(all="ignore"):
        fits = np.isfinite(scale.astype(np.float32))
        judged = fits | ~np.isfinite(scale)
        np.testing.assert_array_equal(np.isnan(found)[judged], np.isnan(expected)[judged])
        np.testing.assert_array_equal(np.isinf(found)[judged], np.isinf(expected)[judged])
        error = np.abs(found - expected)[fits]
    assert np.all(error <= 1e-6 * scale[fits] + 1e-44)
