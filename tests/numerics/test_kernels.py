"""The kernels around the tensor core, on the emulator, return what the model does, bit by bit."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch

from fusegen.emulate import Buffer, EmulatedLibrary, compile_kernels
from fusegen.numerics.pieces import LARGEST, split
from fusegen.numerics.products import CHUNK, split_product
from fusegen.numerics.tensor_core import accumulate
from fusegen.runtime.structs import Struct

CONTRACTION = Path(__file__).parents[2] / "templates" / "support" / "contraction" / "contraction.cu"


class PiecesLayout(ctypes.Structure):
    """As in contraction.h."""

    _fields_ = [("rows", ctypes.c_int64), ("columns", ctypes.c_int64), ("by_columns", ctypes.c_bool)]


class SplitProduct(ctypes.Structure):
    """As in contraction.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "rows", "channels", "in_features")),
        *((name, ctypes.c_void_p) for name in ("left", "right", "left_pieces", "right_pieces", "result", "stream")),
    ]


@pytest.fixture(scope="module")
def library(emulation_cache: Path) -> EmulatedLibrary:
    return compile_kernels(CONTRACTION, cache=emulation_cache)


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
        self.high, self.low = (halves[at : at + plane].reshape(rows, stride)[:, :columns] for at in (0, plane))
        words = halves[2 * plane :].view(np.int32)
        # Kernels write the exponents of the largest elements, and far less than any for a row without one.
        largest, self.lost = words[:scales], words[scales : 2 * scales]
        self.exponents = np.where(largest < -1000, 0, LARGEST - largest)


def check(library: EmulatedLibrary, values: np.ndarray, by_columns: bool, others: np.ndarray | None = None) -> None:
    """others: a matrix whose exponents are folded in."""
    folded = None if others is None else Emulated(library, others)
    found = Emulated(library, values, by_columns, folded)
    expected = split(values, None if others is None else split(others).exponents, by_columns)
    for name in ("high", "low", "exponents", "lost"):  # zeros of either sign are the same to a tensor core
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


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


@pytest.mark.parametrize("by_columns", (False, True))
@pytest.mark.parametrize("rows, columns", [(17, 24), (9, 33), (40, 7), (1, 8200)])
def test_pieces(library: EmulatedLibrary, rows: int, columns: int, by_columns: bool) -> None:
    values = hostile(rows, max(columns, 6), rows)
    check(library, values, by_columns)
    check(library, values, by_columns, hostile(rows if by_columns else columns, 9, columns))


@pytest.mark.parametrize("spread", (0, 40))
def test_products_are_finished_alike(library: EmulatedLibrary, spread: int) -> None:
    """From the sums of the tensor core, which the model has, to the result: scales that are undone, rounded once."""
    source = np.random.default_rng(spread)
    rows = source.integers(-spread, spread + 1, (13, 1))
    x = np.ldexp(source.standard_normal((13, 80)), rows).astype(np.float32)
    w = np.ldexp(source.standard_normal((11, 80)), rows[:11]).astype(np.float32)
    pieces = split(x), split(w)
    total = np.zeros((13, 11), np.float32)
    for first in range(0, 80, CHUNK):
        total += accumulate([tuple(each.high[:, first : first + CHUNK] for each in pieces)])
    cross = accumulate([(pieces[0].low, pieces[1].high), (pieces[0].high, pieces[1].low)])
    left, right = Emulated(library, x), Emulated(library, w)
    result = Buffer.from_tensor(torch.from_numpy(total))
    pointers = {"left": left.values, "right": right.values, "left_pieces": left.pieces, "right_pieces": right.pieces}
    sizes = {"kind": 0, "rows": 13, "channels": 11, "in_features": 80}
    product = Struct(SplitProduct, {**sizes, **pointers, "result": result, "stream": None})
    library.call("fusegen_split_finish", product, Buffer.from_tensor(torch.from_numpy(cross), readonly=True))
    np.testing.assert_array_equal(result.tensor().numpy(), split_product(*pieces))
