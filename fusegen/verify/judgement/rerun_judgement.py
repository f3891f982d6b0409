"""A second judgement of what failed the first, by several runs of eager PyTorch.

One run is a sample of eager's error. In a batch norm of two rows, or in a sum over many gradients that were rounded
alike, another run of as much rounding may be many times as far from the exact result. So what is beyond the bound of
one run is judged by the worst of several, which differ by rounding alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fusegen.verify.judgement.policy import Comparison, Error
from fusegen.verify.runs.run import Run, run, wanting

MOVED_RUNS = 8


def most(dtype: torch.dtype) -> float:
    """How many times the first bound the second one may be at most. A value that falls on the other side of a kink
    would allow anything; in 16 bits such values are many."""
    return 8.0 if dtype.itemsize == 2 else 32.0


def ulp_away(x: Tensor, ulp: float, generator: torch.Generator) -> Tensor:
    """Each value moved by one unit in the last place of the dtype that computes, up or down at random; a mask as it
    is."""
    if not x.is_floating_point():
        return x
    sign = torch.randint(0, 2, x.shape, generator=generator, device=x.device).to(x.dtype) * 2 - 1
    return x * (1 + sign * ulp)


def moved_runs(
    original: nn.Module,
    inputs: Sequence[Tensor],
    grad_output: Tensor,
    *,
    dtype: torch.dtype,
    autocast_dtype: torch.dtype | None = None,
    train: bool = True,
    seed: int = 0,
) -> list[Run]:
    """Eager PyTorch on inputs and parameters that are an ulp of `dtype` up or down."""
    generator = torch.Generator(inputs[0].device).manual_seed(seed)
    ulp, found = torch.finfo(dtype).eps, []
    for _ in range(MOVED_RUNS):
        module = copy.deepcopy(original)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(ulp_away(parameter, ulp, generator))
        given = [wanting(ulp_away(x.detach(), ulp, generator), x.requires_grad) for x in inputs]
        found.append(run(module, given, grad_output, autocast_dtype=autocast_dtype, train=train))
    return found


def judge_by_reruns(first: Comparison, second: Comparison, dtype: torch.dtype) -> Comparison:
    """What is left of a failed comparison beside its second judgement. A statement, without figures, stays."""
    if first.ok or not first.bound.largest:
        return first
    factor = most(dtype)
    limit = Error(
        min(second.bound.largest, factor * first.bound.largest), min(second.bound.norm, factor * first.bound.norm)
    )
    note = "; ".join(filter(None, (first.note, f"eager's error is the worst of {MOVED_RUNS + 1} runs")))
    ok = second.left_out <= 0.5 and first.fused.within(limit)
    return replace(first, eager=second.eager, bound=limit, ok=ok, note=note)
