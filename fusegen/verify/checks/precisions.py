"""Precisions of the matrix product other than PyTorch's own: of float32 modules that have one."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fusegen.verify.judgement.policy import Comparison, Error, compare, error
from fusegen.verify.judgement.rounding_ties import Rounding
from fusegen.verify.references.products import is_product, matrices
from fusegen.verify.references.reference import Reference, reference
from fusegen.verify.runs.run import Run, draw_gradient, input_name, run

IEEE = "ieee"
ROUNDED = {"bf16": torch.bfloat16, "fp16": torch.float16}


class _RoundedProduct(torch.autograd.Function):
    """x W^T and its gradients, of operands that are rounded; the sums are those of the operands' own dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, narrow: torch.dtype) -> Tensor:
        ctx.narrow = narrow
        x, weight = (each.to(narrow).to(each.dtype) for each in (x, weight))
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        dz = gradients[0].to(ctx.narrow).to(gradients[0].dtype)
        return dz @ weight, dz.flatten(0, -2).T @ x.flatten(0, -2), None


class _RoundedLinear(nn.Linear):
    rounding: Rounding

    def forward(self, x: Tensor) -> Tensor:
        product = _RoundedProduct.apply(x, self.weight, self.rounding.narrow)
        product = self.rounding.record(product, nn.functional.linear, (x, self.weight))
        return product if self.bias is None else product + self.bias


class _Rounded(torch.autograd.Function):
    """Rounds, with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, narrow: torch.dtype) -> Tensor:
        return x.to(narrow).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _RoundedGradient(torch.autograd.Function):
    """The identity, whose gradient is rounded."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, narrow: torch.dtype) -> Tensor:
        ctx.narrow = narrow
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].to(ctx.narrow).to(gradients[0].dtype), None


class _RoundedOperands(TorchFunctionMode):
    """While active, the product with a weight is made of rounded operands, which stand for the plain ones."""

    def __init__(self, weight: Tensor, rounding: Rounding) -> None:
        super().__init__()
        self.weight, self.rounding = weight, rounding

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if not is_product(func) or args[1] is not self.weight:
            return func(*args, **(kwargs or {}))
        narrow = self.rounding.narrow
        operands = [_Rounded.apply(each, narrow) for each in args[:2]]
        for rounded, plain in zip(operands, args[:2], strict=True):
            rounded.stands_for = plain
        product = _RoundedGradient.apply(func(*operands), narrow)
        product = self.rounding.record(product, func, args[:2])
        return product if len(args) < 3 or args[2] is None else product + args[2]


def rounded_operands(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """The precisions that round operands, beside the original with operands rounded alike, in train and eval.

    Where rounding errors of the tail turn the rounding of an element of the product's gradient, both gradients are off
    by an ulp of the narrow dtype there. That is rare in a dense gradient: operands that were rounded otherwise are off
    ten times as far. In one of few elements it is what verify/judgement/rounding_ties.py says.
    """
    results = []
    weight, scaled = _weight(original, inputs), getattr(fused, "fusegen_chunk", None) is not None
    for precision, narrow in ROUNDED.items():
        mine = with_precision(copy.deepcopy(fused), precision)
        rounding = Rounding(narrow)
        theirs = _with_rounded_product(original, weight, rounding)
        for train in (True, False):
            label = f"{precision}, {'train' if train else 'eval'}: "
            grad_output = draw_gradient(theirs, inputs, train=train)
            found, eager = (run(module, inputs, grad_output, train=train) for module in (mine, theirs))
            gradient = rounding.gradient
            exact = reference(theirs, inputs, grad_output, train=train)
            ties = rounding.ties(gradient)
            of_product = dict(zip((input_name(0), weight), ties, strict=False))
            results += _judged(label, found, eager, exact, narrow, of_product, scaled)
    return results


def _judged(
    label: str,
    found: Run,
    eager: Run,
    exact: Reference,
    narrow: torch.dtype,
    of_product: Mapping[str, Tensor],
    scaled: bool,
) -> list[Comparison]:
    """of_product: what has a gradient that is a product of rounded operands, and how far elements that may round to
    another value take it. scaled: whether the gradient of the product is rounded before it is multiplied by what is the
    same for all rows: then it is off by as much as rounding takes it, not by that of a few ties."""
    ulp = torch.finfo(narrow).eps
    rounded = ulp / 2 if scaled else ulp / 32
    length = max(size for each in (eager.output, *eager.gradients.values()) if each is not None for size in each.shape)
    judge = functools.partial(compare, dtype=torch.float32, reduction_length=length)
    results = [judge(f"{label}output", found.output, eager.output, exact.run.output, left_out=exact.jumped)]
    for name, expected in exact.run.gradients.items():
        mine, theirs = found.gradients[name], eager.gradients[name]
        if expected is None or mine is None or theirs is None:
            continue
        item = judge(f"{label}grad {name}", mine, theirs, expected, terms=exact.terms.get(name))
        if name in of_product:
            tied = of_product[name]
            tied = tied if tied.shape == expected.shape else tied.movedim(-1, 1)  # of a product of images
            ties = error(expected + tied, expected, exact.terms.get(name))
            bound = Error(item.bound.largest + ulp, item.bound.norm + math.hypot(rounded, ties.norm))
            item = replace(item, bound=bound, ok=item.fused.within(bound))
        results.append(item)
    return results


def with_precision(module: nn.Module, precision: str) -> nn.Module:
    """The module itself, which multiplies in that precision from now on, at small sizes too."""
    if precision != IEEE:
        module.fusegen_precision = precision  # type: ignore[assignment]
        module._fusegen_split_always = True  # type: ignore[assignment]
    return module


def _with_rounded_product(original: nn.Module, weight: str, rounding: Rounding) -> nn.Module:
    """A copy of the original in which the product with that weight is made of rounded operands."""
    changed: Any = copy.deepcopy(original)
    layer = weight.rpartition(".")[0]
    if layer:
        linear: Any = changed.get_submodule(layer)
        linear.__class__ = _RoundedLinear
        linear.rounding = rounding
        return changed
    plain = type(changed)

    def forward(self: nn.Module, *inputs: Tensor) -> Tensor:
        with _RoundedOperands(self.get_parameter(weight), rounding):
            return plain.forward(self, *inputs)

    changed.__class__ = type(plain.__name__, (plain,), {"forward": forward})
    return changed


def _weight(module: nn.Module, inputs: Sequence[Tensor]) -> str:
    """The name of the weight: a linear layer's, or the module's own."""
    layers = [name for name, each in module.named_modules() if type(each) is nn.Linear]
    return f"{layers[0]}.weight" if layers else next(iter(matrices(module, inputs, ())))
