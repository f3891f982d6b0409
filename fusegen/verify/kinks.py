"""Where a chain's last element-wise steps have a kink, the gradient is decided by the last bit of the value.

Behind a norm, two correct float32 implementations can fall on different sides of relu's zero, about once in
a million elements, and 16-bit ones much oftener; one such element then outweighs all rounding. An incoming gradient of
zero at those elements keeps the comparison about rounding. What happens exactly at a kink is for tests with chosen
values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_AT_ZERO = {torch.relu, functional.relu, functional.leaky_relu, Tensor.relu}
_BETWEEN = {functional.hardtanh: (-1.0, 1.0), torch.clamp: (None, None), Tensor.clamp: (None, None)}
_NAMES = (("min_val", "min"), ("max_val", "max"))
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
        return func(*args, **kwargs)

    @staticmethod
    def _kinks(func: Any, args: tuple, kwargs: dict) -> list:
        if func in _AT_ZERO:
            return [0.0]
        if func in _PAIRS:
            return [a.detach() for a in args[1:2] if isinstance(a, Tensor)]
        if func not in _BETWEEN:
            return []
        limits = []
        for index, (names, default) in enumerate(zip(_NAMES, _BETWEEN[func], strict=True)):
            given = args[index + 1] if len(args) > index + 1 else None
            limits.append(
                next(
                    (kwargs[n] for n in names if kwargs.get(n) is not None),
                    default if given is None else given,
                )
            )
        return [limit for limit in limits if limit is not None]

    def _add(self, value: Tensor, kink: Any) -> None:
        near = (value - kink).abs() < self.tolerance * value.abs().clamp(min=1.0)
        self.near = near if self.near is None or self.near.shape != near.shape else self.near | near
