"""Where a chain's last element-wise steps have a kink, the gradient is decided by the last bit of the value.

Behind a norm, two correct float32 implementations can fall on different sides of relu's zero, about once in
a million elements, and 16-bit ones much oftener; one such element then outweighs all rounding. An incoming gradient of
zero at those elements keeps the comparison about rounding. So it is with the gradient of the largest of a row, which
goes to one element or another where two are about as large. What happens exactly at a kink is for tests with chosen
values.
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
            found[op if step.module else text.split("(")[0].rpartition(".")[2]] = step
    return found


_WITH_KINKS = _table()
# Methods whose gradient goes to some elements of a row, and whether these are the largest.
_CHOICES = {"max": True, "min": False, "amax": True, "amin": False}
_PAIRS = {torch.min, torch.max, torch.minimum, torch.maximum}
# By how many ulps two correct results may differ: float32 behind a long sum, and 16 bits, which round once or twice.
_ULPS = {torch.float64: 64, torch.float32: 64, torch.bfloat16: 8, torch.float16: 8}


class Kinks(TorchFunctionMode):
    """While active, collects in `near` which elements come within some ulps of a kink.

    dtype: the one that the computation rounds to, which the values behind an autocast region may not have any more.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.tolerance = _ULPS[dtype] * torch.finfo(dtype).eps
        self.near: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if args and isinstance(args[0], Tensor):
            for kink in self._kinks(func, args, kwargs):
                self._add(args[0].detach(), kink)
            largest = _CHOICES.get(getattr(func, "__name__", ""))
            if largest is not None and "dim" in kwargs and args[0].shape[kwargs["dim"]] > 1:
                self._add_rows(args[0].detach().movedim(kwargs["dim"], -1), largest, kwargs["dim"])
        return func(*args, **kwargs)

    @staticmethod
    def _kinks(func: Any, args: tuple, kwargs: dict) -> list:
        if func in _PAIRS:
            return [a.detach() for a in args[1:2] if isinstance(a, Tensor)]
        step = _WITH_KINKS.get(getattr(func, "__name__", ""))
        if step is None:
            return []
        names = [name for name in step.model_fields if name not in ("op", "save")]
        given = {**dict(zip(names, args[1:], strict=False)), **kwargs}
        found = []
        for kink in step.kinks:
            value = given.get(kink) if isinstance(kink, str) else kink
            found.append(step.model_fields[kink].default if value is None and isinstance(kink, str) else value)
        return [value for value in found if value is not None]

    def _add(self, value: Tensor, kink: Any) -> None:
        self._note((value - kink).abs() < self.tolerance * value.abs().clamp(min=1.0))

    def _add_rows(self, value: Tensor, largest: bool, dim: int) -> None:
        """Rows in which two elements are about as large as any: all results of these depend on which is chosen."""
        first, second = value.topk(2, dim=-1, largest=largest).values.unbind(-1)
        near = (first - second).abs() < self.tolerance * first.abs().clamp(min=1.0)
        self._note(near[..., None].expand(value.shape).movedim(-1, dim))

    def _note(self, near: Tensor) -> None:
        self.near = near if self.near is None or self.near.shape != near.shape else self.near | near
