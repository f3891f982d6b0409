"""Windows of positions: which elements a call of a pooling function takes together, and which of them it chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_OF_WINDOWS = ("kernel_size", "stride", "padding", "dilation")
_FUNCTIONS = {
    **{f"max_pool{n}d": (n, _OF_WINDOWS) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": (n, _OF_WINDOWS[:3]) for n in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{n}d": (n, ()) for kind in ("avg", "max") for n in (1, 2, 3)},
}


class Windows:
    """The windows of one call. name: of the function. value: its first argument. shape: of its result.

    chooses: whether the result is the largest element of a window.
    """

    def __init__(self, name: str, value: Tensor, shape: torch.Size, args: tuple, kwargs: dict) -> None:
        self.count, keys = _FUNCTIONS[name]
        self.shape, self.chooses = shape, "max" in name
        given = dict(zip(keys, args[1:], strict=False)) | {key: kwargs[key] for key in keys if key in kwargs}
        dims = range(-self.count, 0)
        flat: Tensor | None = None
        for at, dim in enumerate(dims):
            size, out = value.shape[dim], shape[dim]
            places = _adaptive(size, out) if not keys else _regular(size, out, *_options(given, at))
            places = places.to(value.device)
            if flat is None:
                flat = places
                continue
            joined = flat[:, None, :, None] * size + places[None, :, None, :]
            outside = (flat < 0)[:, None, :, None] | (places < 0)[None, :, None, :]
            joined = torch.where(outside, -1, joined)
            flat = joined.reshape(flat.shape[0] * places.shape[0], flat.shape[1] * places.shape[1])
        assert flat is not None
        # [windows, elements]: the place of each element among the positions; -1 outside.
        self.places = flat

    @classmethod
    def of_call(cls, func: Any, args: tuple, kwargs: dict) -> Windows | None:
        """Those of a call that is yet to be made."""
        name = getattr(func, "__name__", "").removeprefix("_")
        return cls.of(func, args, kwargs, func(*args, **kwargs)) if name in _FUNCTIONS else None

    @classmethod
    def of(cls, func: Any, args: tuple, kwargs: dict, result: Any) -> Windows | None:
        """Those of a call in eager PyTorch; None of another function."""
        name = getattr(func, "__name__", "").removeprefix("_")
        made = result[0] if isinstance(result, tuple) else result
        if name not in _FUNCTIONS or not (args and isinstance(args[0], Tensor) and isinstance(made, Tensor)):
            return None
        return cls(name, args[0], made.shape, args, kwargs)

    def elements(self, value: Tensor, fill: Any) -> Tensor:
        """The elements of each window, [..., windows, elements]. fill: what is outside."""
        found = value.flatten(-self.count)[..., self.places.clamp(min=0)]
        return found.masked_fill(self.places < 0, fill)

    def any(self, found: Tensor) -> Tensor:
        """Whether any element of a window is found, in the shape of the result."""
        return self.elements(found, False).any(-1).reshape(*found.shape[: -self.count], *self.shape[-self.count :])

    def ties(self, value: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
        """The windows in which two elements are about as large as any, in the shape of the result; and what, added to
        the value, makes the other one of both the largest."""
        elements = self.elements(value, -torch.inf)
        if elements.shape[-1] < 2:
            return torch.zeros(self.shape, dtype=torch.bool, device=value.device), torch.zeros_like(value)
        (first, second), (_, index) = (each.unbind(-1) for each in elements.topk(2))
        near = (first - second).abs() < tolerance * first.abs().clamp(min=1.0)
        beyond = torch.where(near, 2 * (first - second), 0.0)
        at = self.places.expand(elements.shape).gather(-1, index[..., None])[..., 0].clamp(min=0)
        move = torch.zeros_like(value).flatten(-self.count).scatter_reduce(-1, at, beyond, "amax")
        return near.reshape(self.shape), move.reshape(value.shape)


def _options(given: dict[str, Any], at: int) -> tuple[int, int, int, int]:
    """Kernel size, stride, padding and dilation in one dimension."""

    def entry(key: str, default: int) -> int:
        value = given.get(key)
        if value is None or (isinstance(value, Sequence) and not value):
            return default
        return value[min(at, len(value) - 1)] if isinstance(value, Sequence) else value

    kernel = entry("kernel_size", 1)
    return kernel, entry("stride", kernel), entry("padding", 0), entry("dilation", 1)


def _regular(size: int, out: int, kernel: int, stride: int, padding: int, dilation: int) -> Tensor:
    found = torch.arange(out)[:, None] * stride - padding + torch.arange(kernel) * dilation
    return torch.where((found < 0) | (found >= size), -1, found)


def _adaptive(size: int, out: int) -> Tensor:
    start = torch.arange(out) * size // out
    end = -(-(torch.arange(out) + 1) * size // out)
    found = start[:, None] + torch.arange(int((end - start).max()) if out else 0)
    return torch.where(found >= end[:, None], -1, found)
