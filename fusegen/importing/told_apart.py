"""Example inputs of which each size is that of one thing alone: torch.export takes equal sizes for one."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def told_apart(module: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs, with another number of rows where that is the size of something else.

    Sizes of a norm over several dimensions are the module's: they stay. Inputs with fewer dimensions have the last
    ones of the first input, or its first ones: those with which the module runs.
    """
    by_right = [*range(-inputs[0].dim(), 0)]
    alone = _alone(inputs)
    if alone is not None and _runs(module, alone):
        inputs = alone
    for first_ones in (False, True):
        found = _apart(inputs, by_right, first_ones)
        of_one_rank = not first_ones and all(x.dim() in (0, inputs[0].dim()) for x in inputs)
        if of_one_rank and not (_is_over_rows(module) and inputs[0].dim() > 2):
            return found
        if _runs(module, found):
            return found
    return list(inputs)


def _alone(inputs: Sequence[Tensor]) -> list[Tensor] | None:
    """With other rows of the first input alone, which a product with another input allows; None where it has others."""
    first = inputs[0]
    if first.dim() < 3 or all(x.dim() != first.dim() or x.shape[-2] != first.shape[-2] for x in inputs[1:]):
        return None
    taken = {size for x in inputs for size in x.shape}
    return [_with_size(first, first.dim() - 2, max(taken) + 1), *inputs[1:]]


def _apart(inputs: Sequence[Tensor], dims: Sequence[int], first_ones: bool) -> list[Tensor]:
    found, rank = list(inputs), inputs[0].dim()
    for dim in dims[:-1]:
        size = inputs[0].shape[dim]
        at = [_place(x, dim, rank, size, first_ones) for x in found]
        others = {other for x, own in zip(found, at, strict=True) for i, other in enumerate(x.shape) if i != own}
        if size > 1 and size in others:
            taken = {other for x in found for other in x.shape}
            wanted = next(each for each in itertools.count(size + 1) if each not in taken)
            found = [x if own is None else _with_size(x, own, wanted) for x, own in zip(found, at, strict=True)]
    return found


def _place(x: Tensor, dim: int, rank: int, size: int, first_ones: bool) -> int | None:
    """Which dimension of an input is this one of the first input's; None where it has not that size."""
    index = dim + rank if first_ones and x.dim() < rank else dim + x.dim()
    return index if 0 <= index < x.dim() and x.shape[index] == size else None


def _with_size(x: Tensor, dim: int, wanted: int) -> Tensor:
    return x.index_select(dim, torch.arange(wanted, device=x.device) % x.shape[dim])


def _runs(module: nn.Module, inputs: Sequence[Tensor]) -> bool:
    try:
        with torch.no_grad():
            copy.deepcopy(module).eval()(*inputs)
    except Exception:  # theirs to refuse, which the trace tells of
        return False
    return True


def _is_over_rows(module: nn.Module) -> bool:
    """Whether a norm has sizes for more than the last dimension."""
    norms = (each for each in module.modules() if isinstance(each, nn.LayerNorm | nn.RMSNorm))
    return any(len(each.normalized_shape) > 1 for each in norms)
