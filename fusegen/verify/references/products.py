"""Products with an operand that no layer holds: a weight of the module's own, or a further input."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fusegen.verify.runs.run import input_name

PRODUCTS = frozenset({"matmul", "__matmul__", "mm", "bmm", "linear"})


def is_product(function: Any) -> bool:
    return getattr(function, "__name__", "") in PRODUCTS


@dataclass(frozen=True)
class Product:
    """A call of one of them. The result's gradient is known once a backward pass has run.

    bias: what F.linear adds.
    """

    function: Callable[..., Tensor]
    left: Tensor
    right: Tensor
    output: Tensor
    bias: Tensor | None = None

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
            bias = args[2] if len(args) > 2 and func is F.linear else None
            self.seen.append(Product(func, left, right, result, bias))
        return result


def matrices(module: nn.Module, inputs: Sequence[Tensor], held: Collection[int]) -> set[str]:
    """The names of the parameters that the module multiplies with, which are no element-wise operands."""
    return of_products(module, inputs, held)[0]


def of_products(module: nn.Module, inputs: Sequence[Tensor], held: Collection[int]) -> tuple[set[str], set[str]]:
    """The names of the parameters that the module multiplies with, and of those that F.linear adds as a bias. A bias
    may be wider than the module's result."""
    own = [name for name, each in module.named_parameters() if id(each) not in held]
    if not any(module.get_parameter(name).dim() > 1 for name in own):
        return set(), set()
    other = copy.deepcopy(module)
    names = {id(parameter): name for name, parameter in other.named_parameters() if name in own}
    with torch.no_grad(), Products(()) as products:
        other(*inputs)
    weights = {names[id(product.right)] for product in products.seen if id(product.right) in names}
    return weights, {names[id(product.bias)] for product in products.seen if id(product.bias) in names}


def product_terms(product: Product, square: Tensor, module: nn.Module, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """The root of the summed squares of each gradient's terms, in the operand's shape, by the name of the gradient.
    square: the squares of the result's gradient."""
    of_left, of_right = product.terms(square)
    found = {name: of_right for name, parameter in module.named_parameters() if parameter is product.right}
    found |= {n: square.flatten(0, -2).sum(0).sqrt() for n, p in module.named_parameters() if p is product.bias}
    for operand, terms in ((product.left, of_left), (product.right, of_right)):
        found |= {input_name(index): terms for index, x in enumerate(inputs) if operand is x}
        views = {index: x for index, x in enumerate(inputs) if operand._base is x and 0 not in operand.stride()}
        found |= {input_name(index): _seen_from(x, operand, terms) for index, x in views.items()}
    return found


def _seen_from(x: Tensor, view: Tensor, values: Tensor) -> Tensor:
    """In the shape of an input what a view of it has: its dimensions exchanged, or a part of it. Zeros elsewhere."""
    memory = values.new_zeros(x.untyped_storage().nbytes() // x.element_size())
    memory.as_strided(view.size(), view.stride(), view.storage_offset()).copy_(values)
    return memory.as_strided(x.size(), x.stride(), x.storage_offset())


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
