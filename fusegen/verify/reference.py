"""One forward and backward in double precision, and the size of the terms that every gradient is a sum of.

A gradient that cancels to nearly nothing (a linear bias in front of a batch norm, the scale between the
two) carries rounding noise of the size of the cancelling terms. Those terms are known to the double
precision run: it gives every parameter that acts element by element one copy per row, so that its gradient
comes out before the sum over rows, and it looks at what the linear and norm modules receive and return.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.verify.kinks import Kinks, spread_over
from fusegen.verify.run import Run, input_name

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


@dataclass
class Reference:
    """The double precision run, and per gradient the root of the summed squares of its terms.

    jumped: elements of the output where rounding decides on which side of a jump a value is.
    """

    run: Run
    terms: dict[str, Tensor] = field(default_factory=dict)
    jumped: Tensor | None = None


@dataclass
class _Seen:
    name: str
    module: Any  # a linear or norm module; their attributes differ
    input: Tensor
    output: Tensor
    gradient: Tensor | None = None


def reference(
    original: nn.Module,
    inputs: Sequence[Tensor],
    grad_output: Tensor,
    *,
    train: bool = True,
    dtype: torch.dtype | None = None,
) -> Reference:
    """Run a double precision copy of `original`, which itself stays untouched, on the same data.

    dtype: the one that what is compared rounds to, where that is not the first input's.
    """
    exact = copy.deepcopy(original).double().train(train)
    return exact_pass(exact, inputs, grad_output, dtype)


def exact_pass(
    exact: nn.Module, inputs: Sequence[Tensor], grad_output: Tensor, dtype: torch.dtype | None = None
) -> Reference:
    """Forward and backward of a module already in double precision; leaves `.grad` and moves the running
    statistics."""
    exact.zero_grad(set_to_none=True)
    inputs64 = [x.detach().double().requires_grad_(x.requires_grad) for x in inputs]
    seen: list[_Seen] = []
    hooks = [
        module.register_forward_hook(lambda m, args, out, name=name: seen.append(_Seen(name, m, args[0], out)))
        for name, module in exact.named_modules()
        if isinstance(module, (nn.Linear, *NORMS))
    ]
    spread = _spread(exact, grad_output.shape)
    learnt = [module for module in exact.modules() if isinstance(module, nn.PReLU)]
    for module in learnt:
        module.forward = functools.partial(_prelu, module)
    try:
        with Kinks(dtype or inputs[0].dtype) as kinks:
            output = torch.func.functional_call(exact, spread, tuple(inputs64))
    finally:
        for module in learnt:
            del module.forward
        for hook in hooks:
            hook.remove()
    terms = {}
    if output.requires_grad:
        terms = _backward(exact, inputs64, output, grad_output.double(), seen, spread)
    gradients = {input_name(index): x.grad for index, x in enumerate(inputs64)}
    gradients |= {name: p.grad for name, p in exact.named_parameters()}
    buffers = {name: b.clone() for name, b in exact.named_buffers()}
    return Reference(Run(output.detach(), gradients, buffers), terms, spread_over(kinks.jumped, output.shape))


def _prelu(module: nn.PReLU, x: Tensor) -> Tensor:
    """F.prelu takes no weight that differs from row to row."""
    return torch.where(x > 0, x, module.weight * x)


def _spread(exact: nn.Module, shape: torch.Size) -> dict[str, Tensor]:
    """The parameters that no linear or norm module holds, one copy per element of the running value."""
    held = {id(p) for m in exact.modules() if isinstance(m, (nn.Linear, *NORMS)) for p in m.parameters()}
    spread = {}
    for name, parameter in exact.named_parameters():
        if id(parameter) in held:
            continue
        copies = parameter.detach().expand(shape).clone(memory_format=torch.contiguous_format)
        spread[name] = copies.requires_grad_(parameter.requires_grad)
    return spread


def _backward(
    exact: nn.Module,
    inputs: Sequence[Tensor],
    output: Tensor,
    grad_output: Tensor,
    seen: list[_Seen],
    spread: dict[str, Tensor],
) -> dict[str, Tensor]:
    for item in seen:
        if item.output.requires_grad:
            item.output.retain_grad()
    output.backward(grad_output, retain_graph=True)
    for item in seen:
        item.gradient = item.output.grad
    linears = [s for s in seen if isinstance(s.module, nn.Linear) and s.gradient is not None]
    norms = [s for s in seen if isinstance(s.module, NORMS) and s.gradient is not None]
    squares = {id(s): s.gradient.square() for s in linears} | {
        name: copies.grad.square() for name, copies in spread.items() if copies.grad is not None
    }
    _add_frozen_norms(norms, linears, spread, squares)

    terms: dict[str, Tensor] = {}
    for name, copies in spread.items():
        if copies.grad is not None:
            parameter = exact.get_parameter(name)
            parameter.grad = copies.grad.sum_to_size(parameter.shape)
            terms[name] = squares[name].sum_to_size(parameter.shape).sqrt()
    for item in norms:
        terms |= _norm_terms(item)
    for item in linears:
        square = squares[id(item)]
        terms[f"{item.name}.bias"] = square.sum(0).sqrt()
        terms[f"{item.name}.weight"] = (square.T @ item.input.detach().square()).sqrt()
        for index, x in enumerate(inputs):
            if item.input is x:
                terms[input_name(index)] = (square @ item.module.weight.detach().square()).sqrt()
    return terms


def _add_frozen_norms(norms: list[_Seen], linears: list[_Seen], spread: dict, squares: dict) -> None:
    """Add what would flow back if the statistics were constants: the terms before a norm's gradient cancels
    them."""
    targets = {id(s): s.output for s in linears} | {n: c for n, c in spread.items() if c.requires_grad}
    if not targets:  # a chain without a linear layer, whose parameters are all its norms'
        return
    for norm in norms:
        if not norm.input.requires_grad:
            continue
        gradient = norm.gradient * _inverse_deviation(norm.module, norm.input.detach())
        if norm.module.weight is not None:
            gradient = gradient * norm.module.weight.detach()
        values = torch.autograd.grad(norm.input, list(targets.values()), gradient, retain_graph=True, allow_unused=True)
        for key, value in zip(targets, values, strict=True):
            if value is not None and key in squares:
                squares[key] += value.square()


def _norm_terms(item: _Seen) -> dict[str, Tensor]:
    weight = getattr(item.module, "weight", None)
    if weight is None:
        return {}
    bias = getattr(item.module, "bias", None)
    normalised = item.output.detach() if bias is None else item.output.detach() - bias.detach()
    normalised = torch.where(weight.detach() == 0, 0.0, normalised / weight.detach())
    terms = {f"{item.name}.weight": (item.gradient * normalised).square().sum_to_size(weight.shape).sqrt()}
    if bias is not None:
        terms[f"{item.name}.bias"] = item.gradient.square().sum_to_size(bias.shape).sqrt()
    return terms


def _inverse_deviation(module: Any, x: Tensor) -> Tensor:
    """1 / sqrt(variance + eps), in a shape that broadcasts against a (rows, channels) value."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        from_batch = module.training or module.running_var is None
        variance = x.var(0, correction=0) if from_batch else module.running_var
    elif isinstance(module, nn.GroupNorm):
        grouped = x.unflatten(1, (module.num_groups, -1))
        variance = grouped.var(-1, correction=0, keepdim=True).expand(grouped.shape).flatten(1)
    elif isinstance(module, nn.LayerNorm):
        variance = x.var(-1, correction=0, keepdim=True)
    else:
        variance = x.square().mean(-1, keepdim=True)
    eps = module.eps if module.eps is not None else torch.finfo(x.dtype).eps
    return torch.rsqrt(variance + eps)
