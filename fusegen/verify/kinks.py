"""Where a chain's last element-wise steps have a kink, the gradient is decided by the last bit of the value.

Behind a norm, two correct float32 implementations can fall on different sides of relu's zero, about once in
a million elements, and 16-bit ones much oftener; one such element then outweighs all rounding. An incoming gradient of
zero at those elements keeps the comparison about rounding. So it is with the gradient of the largest of a row, which
goes to one element or another where two are about as large. Where the value jumps, as that of floor, the output is left
out of the comparison as well. What happens exactly at a kink is for tests with chosen values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fusegen.ops.catalogue import STEPS
from fusegen.ops.step import Step


def _table() -> dict[str, type[Step]]:
    """The ops that have kinks, by the name of the function that their eager form calls."""
    found = {}
    for step in STEPS:
        if step.kinks:
            op = step.ops()[0]
            # As it would be written with a value for every key; a submodule calls the function of its own name.
            text = step.model_construct(**dict.fromkeys(step.model_fields, 0.0) | {"op": op}).eager("x")
            found[op if step.module else _plain(text.split("(")[0].rpartition(".")[2])] = step
    return found


def _plain(function: str) -> str:
    """A function's name as that of an op: F.threshold calls itself _threshold, and torch.linalg has a prefix."""
    return function.removeprefix("_").removeprefix("linalg_")


_WITH_KINKS = _table()
# Methods whose gradient goes to some elements of a row, and whether these are the largest.
_CHOICES = {"max": True, "min": False, "amax": True, "amin": False}
_PAIRS = {torch.min, torch.max, torch.minimum, torch.maximum}
# By how many ulps two correct results may differ: float32 behind a long sum, and 16 bits, which round once or twice.
_ULPS = {torch.float64: 64, torch.float32: 64, torch.bfloat16: 8, torch.float16: 8}


class Kinks(TorchFunctionMode):
    """While active, collects in `near` which elements come within some ulps of a kink, and in `jumped` of one at which
    the value jumps.

    dtype: the one that the computation rounds to, which the values behind an autocast region may not have any more.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.tolerance = _ULPS[dtype] * torch.finfo(dtype).eps
        self.near: Tensor | None = None
        self.jumped: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], Tensor):
            value = args[0].detach()
            if func in _PAIRS:
                for other in args[1:2]:
                    if isinstance(other, Tensor):
                        self._add(value, other.detach())
            elif step := _WITH_KINKS.get(_plain(getattr(func, "__name__", ""))):
                for kink in _positions(step, args, kwargs):
                    self._add(value, kink, step)
            largest = _CHOICES.get(getattr(func, "__name__", ""))
            if largest is not None and "dim" in kwargs and value.shape[kwargs["dim"]] > 1:
                self._add_rows(value.movedim(kwargs["dim"], -1), largest, kwargs["dim"])
        return func(*args, **kwargs)

    def _add(self, value: Tensor, kink: Any, step: type[Step] = Step) -> None:
        distance = value - kink
        if step.period:
            distance = distance - step.period * (distance / step.period).round()
        near = distance.abs() < self.tolerance * value.abs().clamp(min=1.0)
        self.near = _either(self.near, near)
        if step.jumps:
            self.jumped = _either(self.jumped, near)

    def _add_rows(self, value: Tensor, largest: bool, dim: int) -> None:
        """Rows in which two elements are about as large as any: all results of these depend on which is chosen."""
        first, second = value.topk(2, dim=-1, largest=largest).values.unbind(-1)
        near = (first - second).abs() < self.tolerance * first.abs().clamp(min=1.0)
        self.near = _either(self.near, near[..., None].expand(value.shape).movedim(-1, dim))


def _positions(step: type[Step], args: tuple, kwargs: dict) -> list[Any]:
    """Where a call of an op's function has kinks."""
    names = [name for name in step.model_fields if name not in ("op", *Step.model_fields)]
    given = {**dict(zip(names, args[1:], strict=False)), **kwargs}
    found = []
    for kink in step.kinks:
        if not isinstance(kink, str):
            found.append(kink)
            continue
        key = kink.removeprefix("-")
        value = given.get(key, step.model_fields[key].default)
        if value is not None:
            found.append(-value if kink != key else value)
    return found


def _either(before: Tensor | None, near: Tensor) -> Tensor:
    """Of a value of each row, or of another width, all of the row. What has another shape altogether is of no use
    behind it."""
    wider, narrower = (near, before) if before is None or near.numel() >= before.numel() else (before, near)
    if narrower is None:
        return near
    spread = spread_over(spread_rows(narrower, wider.shape), wider.shape)
    return near if spread is None else wider | spread


def spread_rows(found: Tensor, shape: torch.Size) -> Tensor:
    """The same, where it has the rows of that shape and another width: of each row whether anything is found in it."""
    other = found.shape[-1] not in (1, shape[-1]) and found.shape[:-1] == shape[:-1]
    return found.any(-1, keepdim=True) if other and found.ndim in (2, 3) else found


def narrowed(found: Tensor | None, shape: torch.Size, channels: int) -> Tensor | None:
    """The same for a result of this shape: of one that has no channels, or one in their place, whether any channel
    is. channels: their dimension. None where there is nothing to say of such a shape."""
    if found is None:
        return None
    spread = spread_over(spread_rows(found, shape) if len(shape) == found.dim() else found, shape)
    if spread is not None or found.dim() < 2:
        return spread
    return spread_over(found.any(channels, keepdim=found.dim() == len(shape)), shape)


def spread_over(found: Tensor | None, shape: torch.Size) -> Tensor | None:
    """The same with that shape, where it broadcasts to it; else None."""
    try:
        return None if found is None else found.expand(shape)
    except RuntimeError:
        return None
