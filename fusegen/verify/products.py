"""Products with an operand that no layer holds: a weight of the module's own, or a further input."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

PRODUCTS = frozenset({"matmul", "__matmul__", "mm", "bmm", "linear"})


def is_product(function: Any) -> bool:
    return getattr(function, "__name__", "") in PRODUCTS


@dataclass(frozen=True)
class Product:
    """A call of one of them. The result's gradient is known once a backward pass has run."""

    function: Callable[..., Tensor]
    left: Tensor
    right: Tensor
    output: Tensor

    def terms(self, square: Tensor) -> tuple[Tensor, Tensor]:
        """The root of the summed squares of what the gradient of each operand is a sum of. square: of the result's."""
        operands = [each.detach().square().requires_grad_() for each in (self.left, self.right)]
        left, right = torch.autograd.grad(self.function(*operands), operands, square)
        return left.sqrt(), right.sqrt()


class Products(TorchFunctionMode):
    """While active, collects the products in `seen`, of what their operands stand for.

    held: the ids of tensors that layers hold, whose products are theirs.
    """

    def __init__(self, held: Collection[int]) -> None:
        super().__init__()
        self.held, self.seen = held, list[Product]()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_product(func) and id(args[1]) not in self.held:
            left, right = (getattr(each, "stands_for", each) for each in args[:2])
            self.seen.append(Product(func, left, right, result))
        return result


def matrices(module: nn.Module, inputs: Sequence[Tensor], held: Collection[int]) -> set[str]:
    """The names of the parameters that the module multiplies with, which are no element-wise operands."""
    own = [name for name, each in module.named_parameters() if each.dim() > 1 and id(each) not in held]
    if not own:
        return set()
    other = copy.deepcopy(module)
    names = {id(parameter): name for name, parameter in other.named_parameters() if name in own}
    with torch.no_grad(), Products(()) as products:
        other(*inputs)
    return {names[id(product.right)] for product in products.seen if id(product.right) in names}


class Given(TorchFunctionMode):
    """While active, the product with a weight is one that is given.

    weight: None where there is no other product. add_bias: whether the bias of F.linear is to be added still.
    """

    def __init__(self, weight: Tensor | None, product: Tensor, add_bias: bool) -> None:
        super().__init__()
        self.weight, self.product, self.add_bias = weight, product, add_bias

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if not is_product(func) or (self.weight is not None and args[1] is not self.weight):
            return func(*args, **(kwargs or {}))
        bias = args[2] if len(args) > 2 else None
        return self.product if bias is None or not self.add_bias else self.product + bias
