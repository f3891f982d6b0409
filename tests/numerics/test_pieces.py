"""What pieces are, against arithmetic of rational numbers, and what they promise."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fusegen.numerics.pieces import NOT_FINITE, Pieces, split

FLOATS = st.floats(width=32)
MATRICES = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=FLOATS)
# Of like magnitude, as few of the above are.
CLOSE = st.floats(-8, 8, width=32)
EXPONENTS = st.integers(-150, 163)


def half(value: Fraction) -> float:
    """The fp16 number next to `value`, in C's rounding of Python: float64 has all of these values."""
    return struct.unpack("e", struct.pack("e", float(value)))[0]


def row_of_pieces(row: list[float], folded: list[int]) -> tuple[list[float], list[float], int, int]:
    """High and low pieces, the exponent and the count of a row, an element at a time."""
    quotients = [Fraction(x) / Fraction(2) ** f if math.isfinite(x) else None for x, f in zip(row, folded, strict=True)]
    largest = max((abs(x) for x in quotients if x is not None), default=Fraction(0))
    exponent = 0
    while largest and largest * Fraction(2) ** exponent >= 2**15:
        exponent -= 1
    while largest and largest * Fraction(2) ** exponent < 2**14:
        exponent += 1
    high, low, lost = [], [], 0
    for quotient in quotients:
        scaled = 0 if quotient is None else quotient * Fraction(2) ** exponent
        high.append(half(scaled))
        low.append(half((scaled - Fraction(high[-1])) * 2**11))
        same = Fraction(high[-1]) + Fraction(low[-1]) / 2**11 == scaled
        lost += not (same or abs(scaled) >= Fraction(1, 2**12))
    return high, low, exponent, NOT_FINITE if None in quotients else lost


def check(found: Pieces, values: np.ndarray, folded: np.ndarray) -> None:
    for index, row in enumerate(values.tolist()):
        high, low, exponent, lost = row_of_pieces(row, folded.tolist())
        assert found.high[index].tolist() == high
        assert found.low[index].tolist() == low
        assert (found.exponents[index], found.lost[index]) == (exponent, lost)


@given(MATRICES, st.data())
def test_each_element_by_rational_numbers(values: np.ndarray, data: st.DataObject) -> None:
    folded = data.draw(arrays(np.int32, values.shape[1], elements=EXPONENTS))
    check(split(values, folded), values, folded)
    check(split(values), values, 0 * folded)


@given(arrays(np.float32, (3, 40), elements=CLOSE), st.integers(-100, 100))
def test_elements_of_like_magnitude(values: np.ndarray, exponent: int) -> None:
    scaled = np.ldexp(values, exponent)
    check(split(scaled), scaled, np.zeros(40, np.int32))


@given(MATRICES, st.data())
def test_columns_are_rows_of_the_transpose(values: np.ndarray, data: st.DataObject) -> None:
    folded = data.draw(arrays(np.int32, values.shape[0], elements=EXPONENTS))
    columns, rows = split(values, folded, by_columns=True), split(values.T, folded)
    assert columns.high.shape == columns.low.shape == values.shape and columns.by_columns
    np.testing.assert_array_equal(columns.high, rows.high.T)
    np.testing.assert_array_equal(columns.low, rows.low.T)
    np.testing.assert_array_equal(columns.exponents, rows.exponents)
    np.testing.assert_array_equal(columns.lost, rows.lost)
    np.testing.assert_array_equal(columns.values(), rows.values().T)


@given(arrays(np.float32, (4, 30), elements=CLOSE), arrays(np.int32, 30, elements=st.integers(-40, 40)))
def test_folding_is_a_division_by_powers_of_two(values: np.ndarray, folded: np.ndarray) -> None:
    quotients = np.ldexp(values, -folded)
    exact = values.astype(float) * 2.0**-folded
    safe = np.where(quotients == exact, quotients, 0).astype(np.float32)  # those that float32 has
    expected = split(safe)
    found = split(np.where(quotients == exact, values, 0), folded)
    for name in ("high", "low", "exponents", "lost"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@settings(max_examples=300)
@given(arrays(np.float32, (1, 12), elements=st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_what_pieces_lose(values: np.ndarray) -> None:
    """An element's last bit, at most; of elements that are not held 2^-50 of the largest."""
    pieces = split(values)
    exact = values.astype(float)
    off, largest = np.abs(pieces.values() - exact), np.max(np.abs(exact))
    good = off <= 2.0**-23 * np.abs(exact)
    assert np.all(good | (off <= 2.0**-50 * largest))
    assert np.all(good | (np.abs(exact) < 2.0**-27 * largest))
    assert np.sum(~good) <= pieces.lost[0]


@given(st.integers(2**22, 2**23 - 1), st.integers(-13, 13), st.sampled_from((-1, 1)))
def test_23_bits_are_exact(mantissa: int, exponent: int, sign: int) -> None:
    element = sign * mantissa * 2.0 ** (exponent - 22)
    pieces = split(np.array([[element, 2.0**14]], np.float32))
    assert pieces.exponents[0] == 0 and pieces.values()[0, 0] == element


def test_of_24_bits_the_last_one_may_be_lost() -> None:
    bits = np.arange(0x3F800000, 0x3F800000 + 2**14, dtype=np.uint32).view(np.float32)[None]
    off = np.abs(split(bits).values() - bits)
    assert set(np.unique(off)) == {0.0, 2.0**-23}
    assert np.mean(off > 0) == 0.25


def lost(*row: float) -> int:
    return int(split(np.array([row], np.float32)).lost[0])


def test_what_is_lost() -> None:
    assert lost(0.0, -0.0) == lost(2.0**14, 1 / 3) == 0
    assert lost(2.0**14, 2.0**-12) == lost(2.0**14, 1.1 * 2.0**-12) == 0
    assert lost(2.0**14, 1.1 * 2.0**-13) == 1
    assert lost(2.0**14, 1.1 * 2.0**-13, -1.3 * 2.0**-14, 1.0) == 2
    assert lost(2.0**14, 2.0**-35) == 0 and lost(2.0**14, 2.0**-36) == 1  # 2^-35: the last place of low pieces
    assert lost(2.0**14, 2.0**-14 + 2.0**-30) == 0
    assert lost(1.0, math.inf) == lost(-math.inf, math.inf) == lost(1.0, 1e-30, math.nan) == NOT_FINITE
    assert lost(3e38, 1e-45) == 1 and lost(1e-45, 3e-45) == 0


def test_losses_are_counted_by_rows_or_by_columns() -> None:
    pieces = split(np.array([[1, 2], [math.nan, 3], [1, 1e-30], [4, 5]], np.float32))
    assert pieces.lost.tolist() == [0, NOT_FINITE, 1, 0]
    columns = split(np.array([[1, math.inf, 3], [4, 5, 6]], np.float32), by_columns=True)
    assert columns.lost.tolist() == [0, NOT_FINITE, 0]


def test_what_is_not_finite_has_pieces_of_zero_and_does_not_count() -> None:
    pieces = split(np.array([[math.inf, 3, -math.inf, math.nan], [math.nan] * 4], np.float32))
    np.testing.assert_array_equal(pieces.values(), [[0, 3, 0, 0], [0] * 4])
    assert pieces.exponents.tolist() == [13, 0]


@pytest.mark.parametrize("largest, exponent", [(1.0, 14), (1.99, 14), (3.4028235e38, -113), (1e-45, 163), (0, 0)])
def test_exponents(largest: float, exponent: int) -> None:
    assert split(np.array([[0, -largest]], np.float32)).exponents.tolist() == [exponent]
