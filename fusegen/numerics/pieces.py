"""A float32 matrix as two of fp16: x 2^e = high + low 2^-11, with an exponent e for each row or each column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

LOW = 11  # low pieces are times 2^LOW
LARGEST = 14  # the largest finite element of a row is scaled to [2^LARGEST, 2^(LARGEST + 1))
HELD = -12  # scaled elements from 2^HELD on are held, whatever their bits
NOT_FINITE = 1 << 30
MEETS_ZEROS = 1 << 20  # an exponent to divide by that leaves nothing of any number


@dataclass(frozen=True)
class Pieces:
    """high, low: fp16, of the matrix's shape. exponents, lost: of each row, or of each column.

    lost: how many elements the pieces do not hold, because they are too small beside the row's largest one and the
    pieces are not equal to them; NOT_FINITE where the row has an infinity or a NaN.
    """

    high: np.ndarray
    low: np.ndarray
    exponents: np.ndarray
    lost: np.ndarray
    by_columns: bool

    def values(self) -> np.ndarray:
        """What the pieces stand for, without exponents that were folded in: exact, in float64."""
        scaled = self.high.astype(np.float64) + np.ldexp(self.low.astype(np.float64), -LOW)
        exponents = self.exponents if self.by_columns else self.exponents[:, None]
        return np.ldexp(scaled, -exponents)

    def folds(self) -> np.ndarray:
        """What to fold into the matrix that is multiplied by the rows (or columns): exponents; MEETS_ZEROS of zeros."""
        zeros = np.all(self.high == 0, axis=0 if self.by_columns else 1)  # the largest element has a high piece
        return np.where(zeros, MEETS_ZEROS, self.exponents)

    def summed(self) -> Pieces:
        """As an operand of a product that sums over the exponents' dimension. The other operand has them folded in."""
        others = self.high.shape[0 if self.by_columns else 1]
        return replace(self, exponents=np.zeros(others, np.int32), by_columns=not self.by_columns)


def split(values: np.ndarray, folded: np.ndarray | None = None, by_columns: bool = False) -> Pieces:
    """The pieces of float32 `values`.

    folded: exponents of the other dimension, as Pieces.folds() has them: the values are divided by these powers of two.
    The quotients may be out of float32's range; float64 has them exactly.
    """
    if by_columns:
        found = split(values.T, folded)
        return Pieces(found.high.T, found.low.T, found.exponents, found.lost, True)
    finite = np.isfinite(values)
    exact = np.where(finite, values, 0).astype(np.float64)
    if folded is not None:
        exact = np.ldexp(exact, -folded)
    largest = np.max(np.abs(exact), axis=1, initial=0)
    # frexp's fraction is in [0.5, 1). A row of zeros has the exponent 0.
    exponents = np.where(largest == 0, 0, LARGEST + 1 - np.frexp(largest)[1]).astype(np.int32)
    scaled = np.ldexp(exact, exponents[:, None])
    high = scaled.astype(np.float16)
    rest = np.ldexp(scaled - high.astype(np.float64), LOW)
    low = rest.astype(np.float16)
    held = (np.abs(scaled) >= 2.0**HELD) | (rest == low)
    lost = np.where(np.all(finite, axis=1), np.sum(~held, axis=1), NOT_FINITE)
    return Pieces(high, low, exponents, lost, False)
