"""Whole products: promotion, scales, and errors as they were measured on GPUs."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusegen.numerics.pieces import NOT_FINITE, split
from fusegen.numerics.products import CHUNK, fused_multiply_add, single_product, split_product
from fusegen.numerics.tensor_core import accumulate

SINGLES = st.floats(width=32, allow_nan=False, allow_infinity=False)


def normal(rows: int, depth: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, depth)).astype(np.float32)


def exact(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left.astype(float) @ right.astype(float).T


def error(found: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    """Relative, of Frobenius norms."""
    wanted = exact(left, right)
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def product(left: np.ndarray, right: np.ndarray, chunk: int = 256) -> np.ndarray:
    return split_product(split(left), split(right), chunk)


def round_to_single(value: Fraction) -> float:
    """To the nearest, ties to even."""
    if value == 0:
        return 0.0
    last = -149
    while abs(value) >= Fraction(2) ** (last + 24):
        last += 1
    rounded = round(value / Fraction(2) ** last) * Fraction(2) ** last
    return float(rounded) if abs(rounded) < 2**128 else math.copysign(math.inf, rounded)


@given(SINGLES, SINGLES, SINGLES)
def test_fused_multiply_add(a: float, b: float, c: float) -> None:
    [found] = fused_multiply_add(*(np.array([x], np.float32) for x in (a, b, c)))
    assert found == round_to_single(Fraction(a) * Fraction(b) + Fraction(c))


def test_fused_multiply_add_rounds_once() -> None:
    """Below the middle of two float32 numbers by less than float64 sees: twice rounded, it would go up, to even."""
    a, b, c = (np.array([x], np.float32) for x in (2.0**-12 + 2.0**-27, 2.0**-12 - 2.0**-27, 1 + 2.0**-23))
    assert np.float32(np.float64(a[0]) * np.float64(b[0]) + np.float64(c[0])) == np.float32(1 + 2.0**-22)
    assert fused_multiply_add(a, b, c)[0] == c[0]


def test_infinities_and_nan_in_a_single_product() -> None:
    left = np.array([[np.inf, 1], [np.inf, -np.inf], [np.nan, 1], [3e38, 3e38]], np.float32)
    found = single_product(left, np.ones((1, 2), np.float32))[:, 0]
    np.testing.assert_array_equal(found, np.float32([np.inf, np.nan, np.nan, np.inf]))


def test_a_single_product_is_a_sum_in_order() -> None:
    left, right = normal(3, 50), normal(2, 50, 1)
    for m in range(3):
        for n in range(2):
            total = 0.0
            for a, b in zip(left[m].tolist(), right[n].tolist(), strict=True):
                total = round_to_single(Fraction(a) * Fraction(b) + Fraction(total))
            assert single_product(left, right)[m, n] == total


@pytest.mark.parametrize("depth, chunk", [(700, 256), (512, 256), (48, 16), (300, 512)])
def test_promotion_is_a_sum_of_chunks(depth: int, chunk: int) -> None:
    x, w = split(normal(4, depth)), split(normal(3, depth, 1))
    total = np.zeros((4, 3), np.float32)
    for first in range(0, depth, chunk):
        k = slice(first, first + chunk)
        total = total + accumulate([(x.high[:, k], w.high[:, k])])
    cross = accumulate([(x.low, w.high), (x.high, w.low)])
    for m in range(4):
        for n in range(3):
            wanted = round_to_single(Fraction(float(cross[m, n])) / 2**11 + Fraction(float(total[m, n])))
            found = split_product(x, w, chunk)[m, n]
            assert found == wanted * 2.0 ** -float(x.exponents[m] + w.exponents[n])


def test_cross_terms_where_high_products_cancel() -> None:
    """All bits of the cross terms are seen: low high' comes first in each step."""
    x, w = split(normal(4, 96)), split(normal(3, 96, 1))
    x.high[:, 1::2], w.high[:, 1::2] = -x.high[:, ::2], w.high[:, ::2]
    found, exponents = split_product(x, w), x.exponents[:, None] + w.exponents
    cross = accumulate([(x.low, w.high), (x.high, w.low)])
    assert np.all(cross != 0) and np.any(cross != accumulate([(x.high, w.low), (x.low, w.high)]))
    np.testing.assert_array_equal(found, np.ldexp(cross, -11 - exponents))


def test_chunks_are_those_of_the_kernel() -> None:
    source = (Path(__file__).parents[2] / "templates/support/contraction/tiles.cuh").read_text()
    assert f"constexpr int kPromoted = {CHUNK};" in source
    x, w = split(normal(4, 300)), split(normal(3, 300, 1))
    np.testing.assert_array_equal(split_product(x, w), split_product(x, w, CHUNK))
    assert np.any(split_product(x, w) != split_product(x, w, 2 * CHUNK))


@given(st.integers(1, 300), st.integers(0, 2**32 - 1), st.integers(0, 12))
def test_a_bound_for_each_element(depth: int, seed: int, spread: int) -> None:
    """In units of 2^-23 of the sum of magnitudes; cancelling sums are worst.

    A step cuts 2^-25 off each of 17 addends, at most, and 2^-23 off their sum. 16 steps of high pieces are a chunk; the
    cross terms are 2^-11 of the whole. Elements lose 2^-23 each, and low times low is 2^-22.
    """
    source = np.random.default_rng(seed)
    left, right = (np.ldexp(normal(3, depth, seed + i), source.integers(-spread, 1, depth)) for i in (1, 2))
    left[:, 1::2], right[:, 1::2] = -left[:, : depth // 2 * 2 : 2], right[:, : depth // 2 * 2 : 2]
    units = 16 * (17 / 4 + 1) + 1 + 2 + 2 + 1
    bound = units * 2.0**-23 * exact(np.abs(left), np.abs(right))
    assert np.all(np.abs(product(left, right) - exact(left, right)) <= bound)


def test_scales_are_undone_exactly_and_results_are_rounded_once() -> None:
    left, right = normal(4, 64), normal(3, 64, 1)
    plain = product(left, right)
    np.testing.assert_array_equal(product(np.ldexp(left, 90), np.ldexp(right, -40)), np.ldexp(plain, 50))
    small = product(np.ldexp(left, -70), np.ldexp(right, -68))
    np.testing.assert_array_equal(small, np.ldexp(plain.astype(float), -138).astype(np.float32))
    assert np.all(np.isinf(product(np.ldexp(left, 70), np.ldexp(right, 70))))
    rows = np.array([3, -20, 40, 0])
    np.testing.assert_array_equal(product(np.ldexp(left, rows[:, None]), right), np.ldexp(plain, rows[:, None]))


def test_gradients_by_columns_and_with_exponents_folded_in() -> None:
    """dz W and dz^T x, with pieces of W and x by rows: their exponents are those of what is summed over."""
    x, w, dz = normal(40, 24), normal(32, 24, 1), normal(40, 32, 2)
    x[3] *= 1e9
    w[5] *= 1e-12
    of_x, of_w = split(x), split(w)
    for pieces in (of_x, of_w):
        assert np.ptp(pieces.exponents) > 20
    dx = split_product(split(dz, of_w.folds()), of_w.summed())
    dw = split_product(split(dz, of_x.folds(), by_columns=True), of_x.summed())
    assert error(dx, dz, w.T) < 2e-7 and error(dw, dz.T, x.T) < 2e-7


def test_what_meets_a_row_of_zeros_does_not_count() -> None:
    """Its exponent would be that of 1, far above those of a weight's small rows, and set the exponent of all of dz."""
    w, dz = normal(32, 24, 1) * np.float32(2.0**-40), normal(40, 32, 2)
    w[31] = 0  # the last one, so that the others meet in the same steps without it
    dz[0, 6] = dz[1, 31] = np.inf
    of_w = split(w)
    rows, columns = split(dz, of_w.folds()), split(dz.T, of_w.folds(), by_columns=True)
    assert rows.lost.tolist() == columns.lost.tolist() == 2 * [NOT_FINITE] + 38 * [0]
    others = split(w[:31])
    alone = split(dz[:, :31], others.folds())
    np.testing.assert_array_equal(rows.exponents, alone.exponents)
    np.testing.assert_array_equal(columns.exponents, alone.exponents)
    np.testing.assert_array_equal(split_product(rows, of_w.summed())[2:], split_product(alone, others.summed())[2:])


# 1024 x 8192 x 8192 on an H100, products of high pieces by the library, in chunks of K: the relative errors in
# Frobenius norm. x and W are normal, or magnitudes of normal numbers.
MEASURED = {
    "normal": {256: 3.6e-7, 512: 6.5e-7, 1024: 1.25e-6, 2048: 2.5e-6, 8192: 9.7e-6},
    "positive": {256: 1.2e-6, 512: 2.8e-6, 1024: 6.1e-6, 2048: 1.3e-5, 8192: 5.3e-5},
}


@pytest.mark.parametrize("data, chunk", [(data, chunk) for data, errors in MEASURED.items() for chunk in errors])
def test_errors_are_those_of_a_gpu(data: str, chunk: int) -> None:
    left, right = normal(32, 8192), normal(32, 8192, 1)
    if data == "positive":
        left, right = np.abs(left), np.abs(right)
    assert error(product(left, right, chunk), left, right) == pytest.approx(MEASURED[data][chunk], rel=0.05)
