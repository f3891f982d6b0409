"""A function of one value, over all its arguments, each result relative to its own size.

A norm, or the largest difference, says nothing of a small result that is wrong altogether. Errors here are in units in
the last place (ulps) of each result in double precision. Where eager PyTorch is within a few of them, the kernels have
to be; where eager has lost its digits, nothing is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fusegen.plan.modules.plan import Plan
from fusegen.verify.judgement.policy import EAGER_FACTOR, Comparison, Error
from fusegen.verify.runs.run import Run, run

# How many ulps are rounding: 16-bit results are rounded once or twice, from float32. The kernels may have twice as
# many.
FEW = {torch.float32: 4.0, torch.bfloat16: 1.0, torch.float16: 1.0}
_NEIGHBOURS = {torch.float32: 8, torch.bfloat16: 1, torch.float16: 1}
_MANTISSAS = 48
_CENTRES = (0.5, 1.0, 1.2784645, 1.1924312, 1.5, 2.0, 3.0, 5.5, 6.0, 9.0, 13.0, 16.6, 20.0, 87.33655, 88.72284, 103.97)
_AROUND = 64


@dataclass(frozen=True)
class Tail:
    """The worst of one quantity: errors in ulps, and the argument at which the kernels are worst."""

    fused: float
    eager: float
    at: float
    ok: bool


def applies(plan: Plan) -> bool:
    """Whether the chain is a function of one value: its input, without parameters, statistics, anchor or dropout."""
    chain = plan.chain
    alone = (
        len(chain.inputs) == chain.number_of_parts == 1
        and plan.spec.outputs is None
        and chain.anchor is None
        and not chain.parameters
        and not chain.buffers
        and not chain.dropouts
    )
    return alone and not any(kernel.passes[0].sums for program in plan.programs for kernel in program.kernels)


def points(dtype: torch.dtype) -> Tensor:
    """All finite numbers of a 16-bit dtype; of float32 some of every exponent, and more where functions change."""
    if dtype != torch.float32:
        values = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    else:
        exponents = torch.arange(255, dtype=torch.int64)[:, None] << 23
        mantissas = torch.linspace(0, 2**23 - 1, _MANTISSAS, dtype=torch.float64).long()
        around = torch.tensor(_CENTRES).view(torch.int32).long()[:, None] + torch.arange(-_AROUND, _AROUND + 1)
        bits = torch.cat([(exponents + mantissas).flatten(), around.flatten()]).to(torch.int32).view(dtype)
        values = torch.cat([bits, -bits, torch.linspace(-120, 120, 2**16 + 1)])
    values = values[values.isfinite()]
    return values[values.float().argsort(stable=True)]


def sweep(
    fused: nn.Module, original: nn.Module, dtype: torch.dtype, device: str, columns: int, spatial: int = 0
) -> dict[str, Tail]:
    """The output and the gradient of two modules of [rows, columns] at all points, beside double precision. spatial: of
    how many dimensions of positions the values are, with one position each."""
    x = points(dtype)
    padded = functional.pad(x[None].float(), (0, -len(x) % columns), mode="replicate")[0].to(dtype)
    given = padded.reshape(-1, columns, *(1,) * spatial).to(device)
    ones = torch.ones_like(given)
    mine, theirs = (run(each, [given.clone().requires_grad_()], ones) for each in (fused, original))
    with _Exact():
        exact = run(original, [given.double().requires_grad_()], ones.double())
    where = given.flatten().double()
    quantities: dict[str, Callable[[Run], Tensor]] = {
        "output": lambda one: one.output,
        "gradient": lambda one: _gradient(one),
    }
    return {
        name: _judged(where, *(of(each).flatten().double() for each in (mine, theirs, exact)), dtype=of(theirs).dtype)
        for name, of in quantities.items()
    }


class _Exact(TorchFunctionMode):
    """Where PyTorch's double precision adds numbers that cancel: both forms of gelu, as 1 + erf and as 1 + tanh."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is not functional.gelu:
            return func(*args, **kwargs)
        (x,) = args
        if kwargs.get("approximate", "none") == "tanh":
            return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))
        return x * 0.5 * torch.special.erfc(x * -math.sqrt(0.5))


def comparisons(found: dict[str, Tail], dtype: torch.dtype) -> list[Comparison]:
    """Judged as other checks are."""
    return [
        Comparison(
            f"tails, {name}",
            Error(tail.fused, tail.fused),
            Error(tail.eager, tail.eager),
            Error(EAGER_FACTOR * FEW[dtype], EAGER_FACTOR * FEW[dtype]),
            tail.ok,
            f"at {tail.at!r}: {tail.fused:.3g} ulps, eager {tail.eager:.3g}",
        )
        for name, tail in found.items()
    ]


def _gradient(one: Run) -> Tensor:
    gradient = one.gradients["input"]
    assert gradient is not None
    return gradient


def _judged(x: Tensor, mine: Tensor, theirs: Tensor, exact: Tensor, *, dtype: torch.dtype) -> Tail:
    fused, eager = (_ulps(x, value, exact, dtype) for value in (mine, theirs))
    # Eager's worst among neighbours: that a single result of it is right by chance asks for nothing.
    around = _NEIGHBOURS[dtype]
    near = functional.max_pool1d(eager[None, None], 2 * around + 1, 1, around)[0, 0]
    excess = torch.where(near <= FEW[dtype], fused / (EAGER_FACTOR * FEW[dtype]), -1.0)
    worst = int(excess.argmax())
    return Tail(float(fused[worst]), float(near[worst]), float(x[worst]), bool(excess[worst] <= 1))


def _ulps(x: Tensor, value: Tensor, exact: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance to the exact value in its ulps. Below the smallest normal number these are all the same size."""
    kind = torch.finfo(dtype)
    exponent = torch.frexp(exact.abs()).exponent.double() - 1
    ulp = torch.pow(2.0, exponent.clamp(min=math.log2(kind.smallest_normal))) * kind.eps
    distance = (value - exact).abs() / ulp
    # Double precision has its own rounding, of about the argument's size, where an exact zero is what it gives.
    lost = (exact == 0) & (value.abs() <= 2.0**-50 * x.abs().clamp(min=1.0))
    # As rounding to the dtype has it: infinite from half an ulp beyond the largest number on.
    rounded = exact.to(dtype).double()
    at_the_end = (exact.abs() / kind.max - 1).abs() <= 2 * FEW[dtype] * kind.eps
    same = (value == rounded) | (value.isnan() & exact.isnan()) | lost
    distance = torch.where(same | (at_the_end & ~value.isnan()), 0.0, distance)
    return torch.where(distance.isnan(), math.inf, distance)
