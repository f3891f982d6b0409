"""A judgement of what lies on another side of a kink inside a chain than in double precision.

In front of a linear layer, convolution or norm, relu's gradient at an element next to zero spreads over many gradients.
Rounding decides which of both it is, in one of some ten million elements in float32. No incoming gradient keeps such an
element out of the comparison (verify/runs/kinks.py), and runs of eager that differ by rounding rarely meet it. So
double precision runs with these elements moved to either side say what they decide, element by element of each
gradient. In 16 bits such elements are many, and eager's own error has them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.runs.kinks import kinks_of, tolerance_of
from fusegen.verify.runs.pooled import Windows
from fusegen.verify.runs.run import Run, in_double, run

# Pairs of runs, each with the elements at random sides and then at the other ones: as many as leave no chance that the
# effects of some elements cancel in all.
PAIRS = 16
# A value may be off by so many times the root of the sum of the squares of the effects, for several at other sides.
SEVERAL = 2.0
# Where more than this part of a value is near a kink, rounding is not what put it there.
MOST = 1e-3


class KinkPerturbation(TorchFunctionMode):
    """While active, elements near a kink are moved to the other side of it, at random.

    other: those that are left with it false. count: of the elements near kinks. share: the largest of a value.
    """

    def __init__(self, dtype: torch.dtype, seed: int, other: bool) -> None:
        super().__init__()
        self.tolerance, self.seed, self.other = tolerance_of(dtype), seed, other
        self.calls, self.count, self.share = 0, 0, 0.0

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        windows = Windows.of_call(func, args, kwargs or {})
        for found in kinks_of(func, args, kwargs or {}, self.tolerance, windows):
            move = found.move()
            count = int(move.count_nonzero())
            self.count += count
            self.share = max(self.share, count / max(move.numel(), 1))
            self.calls += 1
            generator = torch.Generator(move.device).manual_seed(self.seed + 1000 * self.calls)
            heads = torch.rand(move.shape, generator=generator, device=move.device) < 0.5
            args = (args[0] + torch.where(heads ^ self.other, move, 0.0), *args[1:])
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Tolerance:
    """By how much results may be off, element by element, for `count` values that are near a kink."""

    by: Run
    count: int

    def nearer(self, found: Run, exact: Run) -> Run:
        """A run, each value of which is so much nearer to the exact one."""
        return combined(_nearer, found, exact, self.by)

    def judged(self, first: Comparison, second: Comparison) -> Comparison:
        """`first` if it passed or `second`, of the nearer run, failed too; else `second` with a note."""
        if first.ok or not second.ok:
            return first
        note = f"beside what the side of {self.count} values next to a kink decides"
        return replace(second, note="; ".join(filter(None, (second.note, note))))


def kink_tolerance(
    original: nn.Module, inputs: Sequence[Tensor], grad_output: Tensor, *, dtype: torch.dtype, train: bool, seed: int
) -> Tolerance | None:
    """What values near kinks decide, by double precision runs of the original; None where none are, or too many.

    dtype: the one that the computation rounds to. Of 16 bits the answer is None.
    """
    if dtype.itemsize == 2:
        return None
    exact = copy.deepcopy(original).double()
    given = in_double(inputs)
    squares: Run | None = None
    for index in range(PAIRS):
        runs = []
        for other in (False, True):
            with KinkPerturbation(dtype, seed + index, other) as perturbation:
                runs.append(run(exact, given, grad_output.double(), train=train))
            if not perturbation.count or perturbation.share > MOST:
                return None
        apart = combined(lambda a, b: (a - b).double().square() / PAIRS, *runs)
        squares = apart if squares is None else combined(torch.add, squares, apart)
    assert squares is not None
    return Tolerance(combined(lambda sum_: SEVERAL * sum_.sqrt(), squares), perturbation.count)


def combined(function: Callable[..., Tensor], *runs: Run) -> Run:
    """A run whose output, gradients and buffers are `function` of those of `runs`; a gradient that one lacks is
    None."""

    def of(tensors: Sequence[Tensor | None]) -> Tensor | None:
        return None if any(each is None for each in tensors) else function(*tensors)

    gradients = {name: of([each.gradients.get(name) for each in runs]) for name in runs[0].gradients}
    buffers = {name: function(*(each.buffers[name] for each in runs)) for name in runs[0].buffers}
    return Run(function(*(each.output for each in runs)), gradients, buffers)


def _nearer(value: Tensor, exact: Tensor, by: Tensor) -> Tensor:
    off = value.double() - exact
    nearer = exact + off.sign() * (off.abs() - by).clamp(min=0.0)
    return torch.where(torch.isfinite(off) & (by > 0), nearer.to(value.dtype), value)
