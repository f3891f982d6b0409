"""Hopper's tensor core, fp16 to float32: d = left right^T + d over 16 of K, as wgmma.m64nNk16 does it.

Products are exact. They and the accumulator are aligned to the largest exponent among them, and cut off, each towards
zero, EXTRA bits below float32's last place. The sum of what remains is exact; float32 of it is cut off towards zero. A
product's exponent is the sum of its factors' exponents: it is not normalised. That of a subnormal number is fp16's
smallest one, and a product that is zero has none. (F. A. Khattak, M. Mikaitis: Accurate Models of NVIDIA Tensor Cores,
arXiv 2512.07004.) The model is for finite operands, as pieces are.
"""

from __future__ import annotations

import numpy as np

DEPTH = 16  # of an instruction
EXTRA = 2  # bits of an addend below float32's last place
_MANTISSA = 23  # bits of float32, without the leading one
_SMALLEST_HALF, _SMALLEST_SINGLE = -14, -126  # exponents of normal numbers
_NONE = -1000  # in place of the exponent of zero

_Operands = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # of both: values and exponents


def step(left: np.ndarray, right: np.ndarray, before: np.ndarray) -> np.ndarray:
    """One instruction: left [M, 16] and right [N, 16] of fp16, before [M, N] of float32."""
    return _step(*_operands(left, right, 0), before.astype(np.float64)).astype(np.float32)


def accumulate(operands: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """All of K from an accumulator of zero: in each step of 16 an instruction for each pair of `operands`, in order.

    Each pair: left [M, K] and right [N, K] of fp16. K need not be a multiple of 16: zeros follow.
    """
    [(rows, depth), (columns, _)] = [each.shape for each in operands[0]]
    found = np.zeros((rows, columns))
    for first in range(0, depth, DEPTH):
        for left, right in operands:
            found = _step(*_operands(left, right, first), found)
    return found.astype(np.float32)


def toward_zero(values: np.ndarray) -> np.ndarray:
    """float64 numbers with no more bits than float32 has; from 2^128 on infinity."""
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    beyond = (np.abs(found) > np.abs(values)) & (np.abs(values) < 2.0**128)
    return np.where(beyond, np.nextafter(found, np.float32(0)), found).astype(np.float64)


def _operands(left: np.ndarray, right: np.ndarray, first: int) -> _Operands:
    """Values and exponents, with K as the first dimension: NumPy adds whole rows over it."""
    a, b = (each[:, first : first + DEPTH].T.astype(np.float64) for each in (left, right))
    return a[:, :, None], _exponents(a, _SMALLEST_HALF)[:, :, None], b[:, None], _exponents(b, _SMALLEST_HALF)[:, None]


def _exponents(values: np.ndarray, smallest: int) -> np.ndarray:
    return np.where(values == 0, _NONE, np.maximum(np.frexp(values)[1] - 1, smallest))


def _step(a: np.ndarray, a_exponents: np.ndarray, b: np.ndarray, b_exponents: np.ndarray, c: np.ndarray) -> np.ndarray:
    of_products = np.max(a_exponents + b_exponents, axis=0)
    largest = np.maximum(of_products, _exponents(c, _SMALLEST_SINGLE))
    largest = np.where(largest < _SMALLEST_SINGLE, 0, largest)  # all are zero
    scale = np.ldexp(1.0, _MANTISSA + EXTRA - largest)
    total = np.sum(np.trunc(a * b * scale), axis=0, initial=0.0)  # from +0: a sum of zeros has no sign
    return toward_zero((total + np.trunc(c * scale)) / scale)
