"""The tensor core's step, against integers, and where it differs from a sum of float32."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fusegen.numerics.tensor_core import DEPTH, accumulate, step, toward_zero

HALVES = st.floats(width=16, allow_nan=False, allow_infinity=False)
# The accumulators of products of halves are below 2^64.
SINGLES = st.floats(-(2.0**64), 2.0**64, width=32) | st.floats(-1, 1, width=32)


def cut(value: Fraction, last_place: int) -> Fraction:
    """Towards zero, to a multiple of 2^last_place."""
    unit = Fraction(2) ** last_place
    return math.trunc(value / unit) * unit


def exponent(value: float, smallest: int) -> int:
    """Of a number that is not zero."""
    return max(math.frexp(value)[1] - 1, smallest)


def one_result(left: list[float], right: list[float], before: float) -> float:
    """By rational numbers."""
    pairs = [(a, b) for a, b in zip(left, right, strict=True) if a != 0 and b != 0]
    exponents = [exponent(a, -14) + exponent(b, -14) for a, b in pairs]
    if before != 0:
        exponents.append(exponent(before, -126))
    if not exponents:
        return 0.0
    last = max(exponents) - 25
    total = sum((cut(Fraction(a) * Fraction(b), last) for a, b in pairs), cut(Fraction(before), last))
    if total == 0:
        return 0.0
    top = -149
    while abs(total) >= Fraction(2) ** (top + 24):
        top += 1
    return float(cut(total, top))


@settings(max_examples=400)
@given(
    arrays(np.float16, (2, DEPTH), elements=HALVES),
    arrays(np.float16, (3, DEPTH), elements=HALVES),
    arrays(np.float32, (2, 3), elements=SINGLES),
)
def test_a_step_by_rational_numbers(left: np.ndarray, right: np.ndarray, before: np.ndarray) -> None:
    found = step(left, right, before)
    assert found.dtype == np.float32
    for m in range(2):
        for n in range(3):
            assert found[m, n] == one_result(left[m].tolist(), right[n].tolist(), float(before[m, n]))


@given(st.floats(width=64, allow_nan=False, allow_infinity=False).filter(lambda x: abs(x) < 2.0**128))
def test_toward_zero(value: float) -> None:
    [found] = toward_zero(np.array([value]))
    last = max(math.frexp(value)[1] - 24, -149)
    assert found == float(cut(Fraction(value), last))


def test_toward_zero_of_what_float32_does_not_have() -> None:
    np.testing.assert_array_equal(toward_zero(np.array([2.0**128, -(2.0**129)])), [np.inf, -np.inf])
    np.testing.assert_array_equal(toward_zero(np.array([1.9 * 2.0**-149, 0.9 * 2.0**-149])), [2.0**-149, 0])


def single(left: list[float], right: list[float], before: float = 0.0) -> float:
    rows = [np.array([row + [0] * (DEPTH - len(row))], np.float16) for row in (left, right)]
    return float(step(*rows, np.array([[before]], np.float32))[0, 0])


@pytest.mark.parametrize("sign", (1, -1))
def test_two_extra_bits(sign: int) -> None:
    """2^-25 of the largest addend remains, in a sum; what is below is cut off of each addend."""
    assert single([sign, sign * 2.0**-12, sign * 2.0**-12], [1, 2.0**-12, 2.0**-12]) == sign * (1 + 2.0**-23)
    four = [2.0**-12] * 4
    assert single([sign, *(sign * x for x in four)], [1, *(x / 2 for x in four)]) == sign * (1 + 2.0**-23)
    assert single([sign, *(sign * x for x in four * 2)], [1, *(x / 4 for x in four * 2)]) == sign
    # Cancelled, the sum has bits that float32 beside 1 has not.
    assert single([sign, sign * 2.0**-12, -sign], [1, 2.0**-13, 1]) == sign * 2.0**-25
    assert single([sign, sign * 2.0**-13, -sign], [1, 2.0**-13, 1]) == 0


def test_the_accumulator_is_cut_off_too() -> None:
    """A sum of addends: where two products of 2^27 cancel, an accumulator has lost what is below 2^2."""
    left, right = [2.0**15, -(2.0**15)], [2.0**12, 2.0**12]
    assert [single(left, right, before) for before in (7.0, -7.0, 3.0, 4.0)] == [4.0, -4.0, 0.0, 4.0]
    assert single(left[:1], right[:1], 31.0) == 2.0**27 + 16


def test_products_are_aligned_by_the_exponents_of_their_factors() -> None:
    """1.5 * 1.5 counts as 2^0, though it is 2.25."""
    assert single([1.5, 2.0**-12, -1.5], [1.5, 2.0**-13, 1.5]) == 2.0**-25
    assert single([2.25, 2.0**-12, -2.25], [1, 2.0**-13, 1]) == 0
    # Of 2^-24, a subnormal number, the exponent is -14.
    assert single([2.0**-24, 2.0**-24], [1, 2.0**-15]) == 2.0**-24 + 2.0**-39
    assert single([2.0**-24, 2.0**-24], [1, 2.0**-16]) == 2.0**-24


def test_zeros_count_for_nothing_and_have_no_sign() -> None:
    assert single([0, 2.0**-24], [60000, 2.0**-24], 2.0**-72) == 2.0**-48
    assert single([0], [60000], 2.0**-149) == 2.0**-149
    assert math.copysign(1, single([-0.0], [1], -0.0)) == 1
    assert math.copysign(1, single([-1, 1], [1, 1])) == 1


@given(st.integers(1, 100), st.integers(0, 2**32 - 1))
def test_all_of_k(depth: int, seed: int) -> None:
    """Pairs of operands alternate; a rest of K is filled with zeros."""
    source = np.random.default_rng(seed)
    a, b, c, d = (source.standard_normal((3, depth)).astype(np.float16) for _ in range(4))
    expected = np.zeros((3, 3), np.float32)
    for first in range(0, depth, DEPTH):
        for left, right in ((a, b), (c, d)):
            blocks = [np.zeros((3, DEPTH), np.float16) for _ in range(2)]
            for block, operand in zip(blocks, (left, right), strict=True):
                part = operand[:, first : first + DEPTH]
                block[:, : part.shape[1]] = part
            expected = step(*blocks, expected)
    np.testing.assert_array_equal(accumulate([(a, b), (c, d)]), expected)
