"""The kernels around the tensor core, on the emulator, return what the model does, bit by bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fusegen.emulate import Buffer, EmulatedLibrary, compile_kernels
from fusegen.numerics.pieces import split
from fusegen.numerics.products import CHUNK, split_product
from fusegen.numerics.tensor_core import accumulate
from tests.emulate.split import CONTRACTION, ONE_CLUSTER, Emulated, check_product, hostile, product_of


@pytest.fixture(scope="module")
def library(emulation_cache: Path) -> EmulatedLibrary:
    return compile_kernels(CONTRACTION, cache=emulation_cache)


def check(library: EmulatedLibrary, values: np.ndarray, by_columns: bool, others: np.ndarray | None = None) -> None:
    """others: a matrix whose exponents are folded in."""
    folded = None if others is None else Emulated(library, others)
    found = Emulated(library, values, by_columns, folded)
    expected = split(values, None if others is None else split(others).folds(), by_columns)
    for name in ("high", "low", "exponents", "lost"):  # zeros of either sign are the same to a tensor core
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert not found.padding.any()  # the pieces are an op's result, which are the same in each call


@pytest.mark.parametrize("by_columns", (False, True))
@pytest.mark.parametrize("rows, columns", [(17, 24), (9, 33), (40, 7), (5, 1100), (1, 8200)])
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
    product = product_of(0, (13, 11, 80), left, right, result)
    library.call("fusegen_split_finish", product, Buffer.from_tensor(torch.from_numpy(cross), readonly=True))
    np.testing.assert_array_equal(result.tensor().numpy(), split_product(*pieces))


@pytest.fixture(scope="module")
def one_cluster(emulation_cache: Path) -> EmulatedLibrary:
    return compile_kernels(CONTRACTION, cache=emulation_cache, defines=[ONE_CLUSTER])


# Less than a tile; parts of several; pairs of tiles along the rows, along the columns, and one that is not there.
@pytest.mark.parametrize("kind", (0, 1, 2), ids=("forward", "input_gradient", "weight_gradient"))
@pytest.mark.parametrize("rows, columns, depth", [(5, 3, 2), (67, 130, 70), (300, 129, 17), (128, 400, 9), (1, 1, 1)])
def test_products(one_cluster: EmulatedLibrary, kind: int, rows: int, columns: int, depth: int) -> None:
    """As exact as float32, whatever the operands are."""
    for hostile_ones in (False, True):
        # As products are: x and W [., in_features], dz [rows, channels], of which one axis or the other is summed.
        shapes = {
            0: ((rows, depth), (columns, depth)),
            1: ((rows, depth), (depth, columns)),
            2: ((depth, rows), (depth, columns)),
        }[kind]
        sizes = {0: (rows, columns, depth), 1: (rows, depth, columns), 2: (depth, rows, columns)}[kind]
        x, w = (
            hostile(max(shape[0], 4), max(shape[1], 6), seed)[: shape[0], : shape[1]].copy()
            if hostile_ones
            else np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
            for seed, shape in enumerate(shapes)
        )
        right = Emulated(one_cluster, w)
        left = Emulated(one_cluster, x, by_columns=kind == 2, folded=None if kind == 0 else right)
        result = Buffer.poisoned((rows, columns), torch.float32)
        one_cluster.call("fusegen_split_product", product_of(kind, sizes, left, right, result))
        a, b = (each.astype(np.float64) for each in (x, w))
        a, b = (a.T if kind == 2 else a), (b.T if kind == 0 else b)
        with np.errstate(all="ignore"):
            expected, scale = a @ b, np.abs(a) @ np.abs(b)
        check_product(result.tensor().numpy(), expected, scale)
