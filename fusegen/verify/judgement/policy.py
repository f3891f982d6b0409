"""When a fused result is accurate enough.

A result is judged against a double precision reference, beside what eager PyTorch makes of the same data in
the same dtype: its error may be at most twice eager's, plus a few ulps of the dtype it was computed in,
plus the rounding of a float32 sum of `reduction_length` terms. Only the last part grows with the length, by
its square root, because reductions accumulate in float32 whatever the storage dtype is: bfloat16 ulps times
that root would allow anything.

Every error is divided by a magnitude: the largest (or the Frobenius norm) of the reference. Some gradients
are exactly zero in exact arithmetic - that of a linear bias in front of a batch norm, say - and there the
rounding noise has the size of the terms that cancel; `terms` hands that size in, per element, and the
magnitude never falls below it.

A convolution's rounding depends on the memory format, for which cuDNN takes other algorithms: where TF32 is allowed, it
may be used for one and not for the other. Eager's error is the worse of both.

One run is a sample of eager's error: verify/judgement/rerun_judgement.py says what is made of a result beyond the
bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EAGER_FACTOR = 2.0
OUTPUT_ULPS = 1.0
SUM_ULPS = 2.0
# Of this many values, half may be left out of a comparison; fewer may all be, by chance.
ENOUGH = 64


@dataclass(frozen=True)
class Error:
    """A normalised error, measured twice: by the worst element and by the relative Frobenius norm."""

    largest: float
    norm: float

    def within(self, limit: Error) -> bool:
        """Whether both measures are at most those of `limit`; false for NaN."""
        return self.largest <= limit.largest and self.norm <= limit.norm


ZERO = Error(0.0, 0.0)
INFINITE = Error(math.inf, math.inf)


@dataclass(frozen=True)
class Comparison:
    """One quantity of one run, fused beside eager. left_out: the share of its values that was not compared."""

    name: str
    fused: Error
    eager: Error
    bound: Error
    ok: bool
    note: str = ""
    left_out: float = 0.0

    @classmethod
    def statement(cls, name: str, ok: bool, note: str = "") -> Comparison:
        """A comparison that has no figure: dtypes agree, two runs are bitwise equal."""
        return cls(name, ZERO, ZERO, ZERO, ok, note)


def error(actual: Tensor, reference64: Tensor, terms: Tensor | None = None) -> Error:
    """The error of `actual`, over the magnitude of the reference or of the terms that were summed to it."""
    if actual.shape != reference64.shape:
        return INFINITE
    if actual.numel() == 0:
        return ZERO
    exact = reference64.double()
    finite = torch.isfinite(exact)
    value = actual.double()
    if not bool((finite == torch.isfinite(value)).all()):
        return INFINITE
    if not bool(finite.all()):
        exact, value = torch.where(finite, exact, 0.0), torch.where(finite, value, 0.0)
    largest, norm = _magnitude(exact, terms)
    difference = value.sub_(exact) if value.data_ptr() != actual.data_ptr() else value - exact
    return Error(float(difference.abs().max()) / largest, float(difference.norm()) / norm)


def bound(eager_error: Error, dtype: torch.dtype, reduction_length: int, scale: float = 1.0) -> Error:
    """The largest error a fused result may have.

    `scale` is the size of the values that were rounded, in units of the magnitude the errors were divided
    by: more than one where a small change of a large value is what was measured.
    """
    accumulate = torch.float64 if dtype == torch.float64 else torch.float32
    rounding = OUTPUT_ULPS * torch.finfo(dtype).eps
    rounding += SUM_ULPS * torch.finfo(accumulate).eps * math.sqrt(max(reduction_length, 1))
    return Error(
        EAGER_FACTOR * eager_error.largest + rounding * scale,
        EAGER_FACTOR * eager_error.norm + rounding * scale,
    )


def compare(
    name: str,
    fused: Tensor,
    eager: Tensor,
    reference64: Tensor,
    *,
    dtype: torch.dtype,
    reduction_length: int,
    terms: Tensor | None = None,
    scale: float = 1.0,
    left_out: Tensor | None = None,
    also: Sequence[Tensor] = (),
) -> Comparison:
    """Judge one tensor.

    `also`: other results of eager PyTorch that count as its own; the worst of them makes the bound.
    `dtype` is the one that the computation rounds to, which under autocast is not the tensor's. `left_out` is true at
    values of which rounding decides on which side of a jump they are: either side is right. Where those are most of the
    values, the comparison fails, for it has compared next to nothing.
    """
    if fused.shape != eager.shape:
        return Comparison(name, INFINITE, ZERO, ZERO, False, f"shape {list(fused.shape)}, eager {list(eager.shape)}")
    notes, share = [], 0.0
    if left_out is not None and (count := int(left_out.sum())):
        fused, eager, reference64 = (torch.where(left_out, 0.0, each) for each in (fused, eager, reference64))
        share = count / left_out.numel()
        notes.append(f"{count} of {left_out.numel()} values left out, near a jump")
    if not same_special_values(fused, eager):
        return Comparison(name, INFINITE, ZERO, ZERO, False, "NaN or infinity where eager has none, or the reverse")
    finite = torch.isfinite(eager)
    if not bool(finite.all()):
        # Where eager overflowed its dtype nothing is left to measure; that fused did too was checked above.
        notes.append(f"{int((~finite).sum())} values not finite, as eager")
        fused, eager = torch.where(finite, fused, 0.0), torch.where(finite, eager, 0.0)
        reference64 = torch.where(finite, reference64, 0.0)
    fused_error = error(fused, reference64, terms)
    eager_error = error(eager, reference64, terms)
    compared = finite if left_out is None else finite & ~left_out
    for result in also:
        other = error(torch.where(compared, result, reference64.to(result)), reference64, terms)
        if math.isfinite(other.largest):
            eager_error = Error(max(eager_error.largest, other.largest), max(eager_error.norm, other.norm))
    limit = bound(eager_error, dtype, reduction_length, scale)
    enough = share <= 0.5 or fused.numel() < ENOUGH
    ok = enough and fused_error.within(limit)
    return Comparison(name, fused_error, eager_error, limit, ok, "; ".join(notes), share)


def same_special_values(a: Tensor, b: Tensor) -> bool:
    """Whether NaN, +inf and -inf stand at the same positions."""
    return all(torch.equal(test(a), test(b)) for test in (torch.isnan, torch.isposinf, torch.isneginf) if a.numel())


def table(comparisons: Iterable[Comparison], *, failures_only: bool = False) -> str:
    """A markdown table, one row a comparison: both measures of fused, eager and the bound."""
    lines = ["| quantity | fused | eager | bound | ok |", "|---|---|---|---|---|"]
    for item in comparisons:
        if failures_only and item.ok:
            continue
        verdict = "yes" if item.ok else "NO"
        note = f" ({item.note})" if item.note else ""
        cells = (f"{e.largest:.2e} / {e.norm:.2e}" for e in (item.fused, item.eager, item.bound))
        lines.append(f"| {item.name} | {' | '.join(cells)} | {verdict}{note} |")
    return "\n".join(lines)


def _magnitude(exact: Tensor, terms: Tensor | None) -> tuple[float, float]:
    largest, norm = float(exact.abs().max()), float(exact.norm())
    if terms is not None:
        size = terms.to(exact).expand(exact.shape)
        largest, norm = max(largest, float(size.max())), max(norm, float(size.norm()))
    # A reference of nothing but zeros, and no idea of the terms: an absolute error is all there is.
    return largest or 1.0, norm or 1.0
