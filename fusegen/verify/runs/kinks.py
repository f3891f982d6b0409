"""Where a chain's last element-wise steps have a kink, the gradient is decided by the last bit of the value.

Behind a norm, two correct float32 implementations can fall on different sides of relu's zero, about once in
a million elements, and 16-bit ones much oftener; one such element then outweighs all rounding. An incoming gradient of
zero at those elements keeps the comparison about rounding. So it is with the gradient of the largest of a row, which
goes to one element or another where two are about as large. Where the value jumps, as that of floor, the output is left
out of the comparison as well. What happens exactly at a kink is for tests with chosen values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fusegen.ops.catalogue import STEPS
from fusegen.ops.step import Step
from fusegen.verify.runs.pooled import Windows


def _table() -> dict[str, type[Step]]:
    """The ops that have kinks, by the name of the function that their eager form calls."""
    found = {}
    for step in STEPS:
        if step.kinks:
            op = step.ops()[0]
            # As it would be written with a value for every key; a submodule calls the function of its own name.
            values: dict[str, Any] = dict.fromkeys(step.model_fields, 0.0) | {"op": op}
            text = step.model_construct(**values).eager("x")
            found[op if step.module else _plain(text.split("(")[0].rpartition(".")[2])] = step
    return found


def _plain(function: str) -> str:
    """A function's name as that of an op: F.threshold calls itself _threshold, and torch.linalg has a prefix."""
    return function.removeprefix("_").removeprefix("linalg_")


_WITH_KINKS = _table()
# Methods whose gradient goes to some elements of a row, and whether these are the largest.
_CHOICES = {"max": True, "min": False, "amax": True, "amin": False}
# Functions whose results are sums of elements at other positions, or these.
_RESAMPLED = ("interpolate", "pixel_shuffle", "pixel_unshuffle")
_JOINED = ("cat", "concat", "concatenate")
# Functions that give the elements other dimensions.
_VIEWS = ("flatten", "__getitem__")
_PAIRS = {torch.min, torch.max, torch.minimum, torch.maximum}
# By how many ulps two correct results may differ: float32 behind a long sum, and 16 bits, which round once or twice.
_ULPS = {torch.float64: 64, torch.float32: 64, torch.bfloat16: 8, torch.float16: 8}


def tolerance_of(dtype: torch.dtype) -> float:
    """How far two correct results that round to this dtype may be apart, relative to values beyond one."""
    return _ULPS[dtype] * torch.finfo(dtype).eps


class Kinks(TorchFunctionMode):
    """While active, collects in `near` which elements come within some ulps of a kink, and in `jumped` of one at which
    the value jumps.

    dtype: the one that the computation rounds to, which the values behind an autocast region may not have any more.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.tolerance = tolerance_of(dtype)
        self.near: Tensor | None = None
        self.jumped: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        windows = Windows.of(func, args, kwargs or {}, result)
        if windows is not None:  # elements in front decide of the windows that have them
            self.near, self.jumped = (_in_windows(each, windows, args[0]) for each in (self.near, self.jumped))
        call = func, args, kwargs or {}, result
        self.near, self.jumped = (_over_positions(each, *call) for each in (self.near, self.jumped))
        for found in kinks_of(func, args, kwargs or {}, self.tolerance, windows):
            near = _over_positions(found.near, *call)
            self.near = _either(self.near, near)
            if found.jumps:
                self.jumped = _either(self.jumped, near)
        return result


@dataclass(frozen=True)
class Near:
    """Which elements of a call's first argument come near a kink: of rows of which one is chosen, all; of windows of
    positions, the results. move: what, added to the argument, puts each on the other side; zero for one exactly at the
    kink, where every correct result has it. jumps: whether the value itself jumps there."""

    near: Tensor
    move: Callable[[], Tensor]
    jumps: bool = False


def kinks_of(func: Any, args: tuple, kwargs: dict, tolerance: float, windows: Windows | None = None) -> list[Near]:
    """For each kink of a call in eager PyTorch the elements of its first argument that are near. tolerance: relative to
    values beyond one, absolute below. windows: of positions, which the call takes together."""
    if not (args and isinstance(args[0], Tensor)):
        return []
    value, found, name = args[0].detach(), [], getattr(func, "__name__", "")
    if windows is not None:
        return [Near(*_tied(windows, value, tolerance))] if windows.chooses else []
    if func in _PAIRS:
        found += [_at(value, other.detach(), tolerance) for other in args[1:2] if isinstance(other, Tensor)]
    elif step := _WITH_KINKS.get(_plain(name)):
        found += [_at(value, kink, tolerance, step) for kink in _positions(step, args, kwargs)]
    largest, dim = _CHOICES.get(name), kwargs.get("dim")
    if largest is not None and dim is not None:
        dims = dim if isinstance(dim, tuple) else (dim,)
        if math.prod(value.shape[each] for each in dims) > 1:
            found.append(_at_choice(value, largest, dims, tolerance))
    return found


def _at(value: Tensor, kink: Any, tolerance: float, step: type[Step] = Step) -> Near:
    distance = value - kink
    if step.period:
        distance = distance - step.period * (distance / step.period).round()
    near = distance.abs() < tolerance * value.abs().clamp(min=1.0)
    return Near(near, lambda: torch.where(near, -2 * distance, 0.0), bool(step.jumps))


def _tied(windows: Windows, value: Tensor, tolerance: float) -> tuple[Tensor, Callable[[], Tensor]]:
    near, move = windows.ties(value, tolerance)
    return near, lambda: move


def _in_windows(found: Tensor | None, windows: Windows, value: Tensor) -> Tensor | None:
    """The windows that have elements that are found."""
    spread = spread_over(found, value.shape)
    return None if spread is None else windows.any(spread)


def _over_positions(found: Tensor | None, func: Any, args: tuple, kwargs: dict, result: Any) -> Tensor | None:
    """What is found of a call's first argument, in the shape of a result that has other positions, or none: whether any
    of those is that a reduction takes together."""
    name = getattr(func, "__name__", "")
    made = result[0] if isinstance(result, tuple) and result else result
    if found is not None and name in _JOINED:  # of which value it is found, nobody knows
        dim = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        return found.any(dim, keepdim=True) if found.dim() == made.dim() else found
    if found is None or not isinstance(made, Tensor) or not (args and isinstance(args[0], Tensor)):
        return found
    if found.dim() < 2 or found.shape != args[0].shape or made.shape == found.shape:
        return found
    if name in _VIEWS:
        return found.reshape(made.shape) if found.numel() == made.numel() else found
    if name in _RESAMPLED:
        return func(found.to(args[0].dtype), *args[1:], **kwargs) != 0
    dim = kwargs.get("dim")
    dims = dim if isinstance(dim, tuple) else (dim,) if isinstance(dim, int) else ()
    return found.any(dims, keepdim=kwargs.get("keepdim", False)) if max(dims, default=0) > 1 else found


def _at_choice(value: Tensor, largest: bool, dims: tuple[int, ...], tolerance: float) -> Near:
    """Rows in which two elements are about as large as any: all results of these depend on which is chosen. dims: the
    dimensions of a row."""
    last = tuple(range(-len(dims), 0))
    moved = value.movedim(dims, last)
    sizes = moved.shape[-len(dims) :]
    rows = moved.flatten(-len(dims))
    (first, second), (_, index) = (each.unbind(-1) for each in rows.topk(2, largest=largest))
    near = (first - second).abs() < tolerance * first.abs().clamp(min=1.0)

    def move() -> Tensor:
        beyond = torch.where(near, 2 * (first - second), 0.0)[..., None]
        found = torch.zeros_like(rows).scatter(-1, index[..., None], beyond)
        return found.unflatten(-1, sizes).movedim(last, dims)

    return Near(near[..., None].expand(rows.shape).unflatten(-1, sizes).movedim(last, dims), move)


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


def _either(before: Tensor | None, near: Tensor | None) -> Tensor | None:
    """Of a value of each row, or of another width, all of the row. What has another shape altogether is of no use
    behind it."""
    if before is None or near is None:
        return near if before is None else before
    wider, narrower = (near, before) if near.numel() >= before.numel() else (before, near)
    spread = spread_over(spread_rows(narrower, wider.shape), wider.shape)
    return near if spread is None else wider | spread


def spread_rows(found: Tensor, shape: torch.Size) -> Tensor:
    """`found` as [..., 1], whether anything is found in a row, where it has the rows of `shape` and another width; else
    `found`."""
    other = found.shape[-1] not in (1, shape[-1]) and found.shape[:-1] == shape[:-1]
    return found.any(-1, keepdim=True) if other and found.ndim in (2, 3) else found


def narrowed(found: Tensor | None, shape: torch.Size, channels: int) -> Tensor | None:
    """`found` in the shape of a result. Where the result has no channels, or one, it says whether any channel is found.
    channels: the dimension of the channels. None where `found` does not broadcast to the shape."""
    if found is None:
        return None
    spread = spread_over(spread_rows(found, shape) if len(shape) == found.dim() else found, shape)
    if spread is not None or found.dim() < 2:
        return spread
    return spread_over(found.any(channels, keepdim=found.dim() == len(shape)), shape)


def spread_over(found: Tensor | None, shape: torch.Size) -> Tensor | None:
    """`found` expanded to `shape`; None where it does not broadcast to it."""
    try:
        return None if found is None else found.expand(shape)
    except RuntimeError:
        return None
