"""Which elements of a product's gradient may round to another value, and how far that takes the product.

A gradient that comes to a product of rounded operands is rounded, too. Two right float32 gradients differ by a few
ulps, and where one of them is that close to a tie of the narrow dtype, they round to neighbours. In a dense gradient
such elements are too few to be seen. Where a few elements are most of the gradient - those of the least of each row,
say - one of them is seen. So the double precision run says where the ties are, and the operands what a turn costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fusegen.verify.judgement.policy import Error, bound, error

# An element may be off by so many times what the gradient as a whole may be, whose error is a mean of elements.
SCATTER = 2.0
# At most this part of an ulp of the narrow dtype to each side: more would hide another rounding.
MOST = 1 / 64


class Rounding:
    """The product with rounded operands of a module and of its copies: the last run's operands and gradient."""

    def __init__(self, narrow: torch.dtype) -> None:
        self.narrow = narrow
        self.multiply: Callable[..., Tensor] | None = None
        self.operands: tuple[Tensor, ...] = ()
        self.gradient: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Rounding:
        return self

    def record(self, product: Tensor, multiply: Callable[..., Tensor], operands: tuple[Tensor, ...]) -> Tensor:
        """The product, of which the first gradient that comes is kept as it is before it is rounded."""
        self.multiply, self.operands, self.gradient = multiply, tuple(each.detach() for each in operands), None
        if product.requires_grad:
            product.register_hook(self._keep)
        return product

    def _keep(self, gradient: Tensor) -> None:
        if self.gradient is None:
            self.gradient = gradient.detach()

    def ties(self, eager: Tensor | None) -> tuple[Tensor, ...]:
        """After a run in double precision: for each operand, how far its gradient may be off where elements turn.

        eager: the gradient in the run of eager PyTorch. Nothing where no gradient came.
        """
        if eager is None or self.gradient is None or self.multiply is None:
            return ()
        step = rounding_distances(eager, self.gradient, self.narrow)
        with torch.enable_grad():
            sizes = [each.abs().requires_grad_() for each in self.operands]
            return torch.autograd.grad(self.multiply(*sizes), sizes, step)


def rounding_distances(eager: Tensor, exact: Tensor, narrow: torch.dtype) -> Tensor:
    """By how much elements differ that a right gradient of eager's dtype may round to another value than the exact
    one; zero at all others."""
    whole = error(eager, exact)
    off = SCATTER * bound(Error(whole.norm, whole.norm), eager.dtype, 1).norm
    off = min(off, MOST * torch.finfo(narrow).eps)
    low, high = ((exact * (1 + sign * off)).to(narrow).to(exact.dtype) for sign in (-1, 1))
    return torch.nan_to_num(high - low, nan=0.0, posinf=0.0, neginf=0.0).abs()
