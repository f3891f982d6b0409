"""Float32 products x W^T as fp32_split computes them, and as SGEMM does."""

from __future__ import annotations

import numpy as np

from fusegen.numerics.pieces import LOW, Pieces
from fusegen.numerics.tensor_core import accumulate

CHUNK = 64  # of K: the tensor core's sum of as much is added to a float32 sum outside of it


def split_product(left: Pieces, right: Pieces, chunk: int = CHUNK) -> np.ndarray:
    """[M, N] of pieces [M, K] and [N, K], without what pieces do not hold.

    Both are scaled along M and N: pieces by columns are [K, M] and [K, N].
    """
    a_high, a_low, b_high, b_low = (
        plane.T if pieces.by_columns else plane for pieces in (left, right) for plane in (pieces.high, pieces.low)
    )
    total = np.zeros((len(a_high), len(b_high)), np.float32)
    for first in range(0, a_high.shape[1], chunk):
        k = slice(first, first + chunk)
        total += accumulate([(a_high[:, k], b_high[:, k])])  # rounded to nearest
    cross = accumulate([(a_low, b_high), (a_high, b_low)])
    scaled = fused_multiply_add(cross, np.float32(2.0**-LOW), total)
    exponents = left.exponents[:, None] + right.exponents
    with np.errstate(over="ignore"):
        return np.ldexp(scaled.astype(np.float64), -exponents).astype(np.float32)


def single_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """SGEMM: [M, N] of float32 [M, K] and [N, K]. A fused multiply-add for each of K, in order."""
    total = np.zeros((len(left), len(right)), np.float32)
    for k in range(left.shape[1]):
        total = fused_multiply_add(left[:, k, None], right[None, :, k], total)
    return total


def fused_multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a b + c of float32, rounded once, to the nearest."""
    product, addend = np.multiply(a, b, dtype=np.float64), c.astype(np.float64)  # exact
    with np.errstate(over="ignore", invalid="ignore"):
        total = product + addend
        # What float64 lost, exactly (Knuth), or NaN beside infinities. Rounded to odd, the sum rounds to float32 as the
        # exact one does.
        back = total - product
        lost = (product - (total - back)) + (addend - back)
        even = (total.view(np.int64) & 1) == 0
        odd = np.where((np.abs(lost) > 0) & even, np.nextafter(total, np.copysign(np.inf, lost)), total)
        return odd.astype(np.float32)
