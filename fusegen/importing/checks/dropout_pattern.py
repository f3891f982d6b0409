"""Dropout with a pattern in the place of random numbers: a module and its spec's then drop the same, in any order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map


class DropsByPattern(TorchFunctionMode):
    """Within it, dropout keeps what the values decide, in any order of dimensions, and bernoulli_ what the shape
    does. Other random numbers are drawn."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in (F.dropout, torch.dropout, torch.dropout_):
            return _dropout(func, *args, **(kwargs or {}))
        if func is Tensor.bernoulli_ and not isinstance(args[1:2] or (0.5,), Tensor):
            return _bernoulli(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class InDouble(TorchFunctionMode):
    """Within it, a module that casts to float32 goes on in double precision: it is compared in that."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        func = Tensor.double if func in (Tensor.float, Tensor.half, Tensor.bfloat16) else func
        args, kwargs = tree_map(_doubled, (args, kwargs or {}))
        return func(*args, **kwargs)


def _doubled(given: Any) -> Any:
    return torch.float64 if isinstance(given, torch.dtype) and given.is_floating_point else given


def _dropout(func: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, **_: Any) -> Any:
    if not training or p == 0:
        return func(input, p, training)
    kept = _kept_by_value(input.detach(), 1 - p)
    factors = kept / (1 - p) if p < 1 else kept
    return input.mul_(factors) if inplace or func is torch.dropout_ else input * factors


def _bernoulli(tensor: Tensor, p: float = 0.5, **_: Any) -> Tensor:
    return tensor.copy_(_kept(tensor, p))


def _kept(like: Tensor, share: float) -> Tensor:
    """0 or 1 for each element, 1 in this share of them."""
    numbers = torch.arange(like.numel(), dtype=torch.float64, device=like.device)
    return ((numbers * 0.6180339887498949 + 0.3) % 1 < share).to(like.dtype).view(like.shape)


def _kept_by_value(x: Tensor, share: float) -> Tensor:
    """The same for each value, of whatever size it is: 0 is dropped."""
    return (x.abs().log() * 7.3178 % 1 < share).to(x.dtype)
