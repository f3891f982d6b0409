"""Whether a program has the same results in every launch shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from fusegen.plan.launches.shapes import Shapes
from fusegen.tune.launchers import DOES_NOT_FIT
from fusegen.tune.tail import Launch, TailError, TailProgram

# Of the largest and of each element: an ulp or two of the dtype, and some of a sum in float32. Counts are exact.
LIMITS = {torch.float32: 2e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.int64: 0.0}
_PIECE = 1 << 27
_RSTD = "_rstd"

Name = TypeVar("Name")


def agreeing(program: TailProgram, choices: Mapping[Name, Shapes | None]) -> dict[Name, Launch]:
    """A launch for each choice that fits. Raises TailError unless all have the results of the first."""
    launches: dict[Name, Launch] = {}
    expected: dict[str, Tensor] = {}
    for name, shapes in choices.items():
        launch = program.launch(shapes)
        program.reset()
        status = launch()
        if status == DOES_NOT_FIT and launches:
            continue
        if status:
            raise TailError(f"{program.program.name}, {name}: CUDA error {status}")
        if not launches and len(choices) > 1:
            expected = {name: tensor.clone() for name, tensor in program.outputs.items()}
        if problem := wrong(program, expected or program.outputs):
            raise TailError(f"{program.program.name}, {name}: {problem}")
        launches[name] = launch
    return launches


def wrong(found: TailProgram, expected: Mapping[str, Tensor]) -> str | None:
    """Where the outputs are farther from `expected` than their dtype's rounding explains; None if nowhere.

    A gradient that is a sum over elements may be off by the rounding of as many terms, which are about as large as the
    gradients of these elements: in front of a norm the sum itself is what is left of terms that cancel. What a norm
    returns may be off by the rounding of its mean, in deviations: by 300 times as much in a group that is nearly
    constant. A backward program reads the statistics, so that all its choices have the same.
    """
    sizes = {t.name: found.outputs[t.name] for t in found.program.outputs if t.is_full and t.name in found.outputs}
    gradients = {t.name for t in found.program.outputs if t.gradient_of}
    terms_size = _column_sizes([value for name, value in sizes.items() if name in gradients])
    eps = torch.finfo(torch.float32).eps
    rounding = eps * max(
        (_mean_in_deviations(expected, name) for name in expected if name.endswith(_RSTD)), default=0.0
    )
    for name, value in found.outputs.items():
        bound = rounding if value.is_floating_point() else 0.0
        if name in gradients and name not in sizes:
            terms = found.tail.rows * found.tail.channels / value.numel()
            size = terms_size if value.numel() == terms_size.numel() else terms_size.max()
            bound = 64 * eps * terms**0.5 * size
        count = _outside(value.view(-1), expected[name].view(-1), LIMITS[value.dtype], bound)
        if count:
            return f"{count} of {value.numel()} elements of {name} differ"
    return None


def _mean_in_deviations(expected: Mapping[str, Tensor], rstd: str) -> float:
    """The largest mean of a norm over its deviation; 0 for a norm without a mean."""
    mean = expected.get(rstd.removesuffix(_RSTD) + "_mean")
    return 0.0 if mean is None else float((mean.abs() * expected[rstd]).max())


def _column_sizes(gradients: Sequence[Tensor]) -> Tensor:
    """The largest element of each column of any of these, at least 1; without temporaries of their size."""
    found = [torch.linalg.vector_norm(value, torch.inf, dim=0).float() for value in gradients]
    return torch.stack(found).amax(0).clamp_min(1.0) if found else torch.ones(1)


def _outside(found: Tensor, expected: Tensor, limit: float, sums: float | Tensor) -> int:
    """In pieces: full-size temporaries of the largest sizes would not fit. sums: what sums may be off."""
    pieces = list(zip(found.split(_PIECE), expected.split(_PIECE), strict=True))
    largest = torch.stack([piece.abs().amax().float() for _, piece in pieces]).max()
    bound = limit / 8 * (largest + 1) + sums
    # Negated, so that a NaN is outside.
    inside = [(a.float() - b.float()).abs() <= bound + limit * b.float().abs() for a, b in pieces]
    return found.numel() - int(torch.stack([piece.sum() for piece in inside]).sum())
