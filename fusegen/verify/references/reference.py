"""One forward and backward in double precision, and the size of the terms that every gradient is a sum of.

A gradient that cancels to nearly nothing (a linear bias in front of a batch norm, the scale between the
two) carries rounding noise of the size of the cancelling terms. Those terms are known to the double
precision run: it gives every parameter that acts element by element one copy per row, so that its gradient
comes out before the sum over rows, and it looks at what the linear layer, convolution and norms receive and return.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.verify.references.per_element_gradients import form_of, per_element_inputs, per_element_parameters
from fusegen.verify.references.products import Product, Products, of_products, product_terms
from fusegen.verify.runs.kinks import Kinks, narrowed
from fusegen.verify.runs.run import Run, channel_dim, in_double, input_name

NORMS = (
    *(nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm),
    *(nn.GroupNorm, nn.LayerNorm, nn.RMSNorm),
)
ANCHORS = (nn.Linear, nn.modules.conv._ConvNd)


@dataclass
class Reference:
    """The double precision run, and per gradient the root of the summed squares of its terms.

    jumped: elements of the output where rounding decides on which side of a jump a value is. channels: which dimension
    of values is that.
    """

    run: Run
    terms: dict[str, Tensor] = field(default_factory=dict)
    jumped: Tensor | None = None
    channels: int = 1


@dataclass
class _Seen:
    name: str
    module: Any  # an anchor, a norm or a product; their attributes differ
    input: Tensor
    output: Tensor
    gradient: Tensor = field(init=False, repr=False)  # of the output, once a backward pass came to it


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
    inputs64 = in_double(inputs)
    seen: list[_Seen] = []
    hooks = [
        module.register_forward_hook(lambda m, args, out, name=name: seen.append(_Seen(name, m, args[0], out)))
        for name, module in exact.named_modules()
        if isinstance(module, (*ANCHORS, *NORMS))
    ]
    of_layers = {id(p) for m in exact.modules() if isinstance(m, (*ANCHORS, *NORMS)) for p in m.parameters()}
    multiplied, added = of_products(exact, inputs64, of_layers)
    held = of_layers | {id(exact.get_parameter(name)) for name in (*multiplied, *added)}
    parameters = per_element_parameters(exact, grad_output.shape, inputs[0].dim(), held)
    copied = per_element_inputs(exact, inputs64, grad_output.shape)
    given = tuple(copied.get(input_name(index), x) for index, x in enumerate(inputs64))
    learnt = [module for module in exact.modules() if isinstance(module, nn.PReLU)]
    for module in learnt:
        module.forward = functools.partial(_prelu, module)  # type: ignore[method-assign]
    try:
        with Kinks(dtype or inputs[0].dtype) as kinks, Products(of_layers) as products:
            output = torch.func.functional_call(exact, parameters, given)
    finally:
        for module in learnt:
            del module.forward
        for hook in hooks:
            hook.remove()
    names = {id(p): name for name, p in exact.named_parameters()}
    seen += [_Seen(names.get(id(each.right), ""), each, each.left, each.output) for each in products.seen]
    terms: dict[str, Tensor] = {}
    if output.requires_grad:
        terms = _backward(exact, inputs64, output, grad_output.double(), seen, parameters | copied)
    gradients = {input_name(index): x.grad for index, x in enumerate(inputs64)}
    gradients |= {name: p.grad for name, p in exact.named_parameters()}
    buffers = {name: b.clone() for name, b in exact.named_buffers()}
    dim = channel_dim(exact)
    found, jumped = Run(output.detach(), gradients, buffers), narrowed(kinks.jumped, output.shape, dim)
    return Reference(found, terms, jumped, dim)


def _prelu(module: nn.PReLU, x: Tensor) -> Tensor:
    """F.prelu takes no weight that differs from row to row."""
    return torch.where(x > 0, x, module.weight * x)


def _backward(
    exact: nn.Module,
    inputs: Sequence[Tensor],
    output: Tensor,
    grad_output: Tensor,
    seen: list[_Seen],
    parameters: dict[str, Tensor],
) -> dict[str, Tensor]:
    for item in seen:
        if item.output.requires_grad:
            item.output.retain_grad()
    output.backward(grad_output, retain_graph=True)
    reached = []
    for item in seen:
        if item.output.grad is not None:
            item.gradient = item.output.grad
            reached.append(item)
    anchors = [s for s in reached if isinstance(s.module, (*ANCHORS, Product))]
    norms = [s for s in reached if isinstance(s.module, NORMS)]
    squares: dict[Any, Tensor] = {id(s): s.gradient.square() for s in (*anchors, *norms)}
    squares |= {name: copies.grad.square() for name, copies in parameters.items() if copies.grad is not None}
    _add_frozen_norms(norms, anchors, parameters, squares)

    terms: dict[str, Tensor] = {}
    given = {input_name(index): x for index, x in enumerate(inputs)}
    for name, copies in parameters.items():
        if copies.grad is not None:
            parameter = given[name] if name in given else exact.get_parameter(name)
            form = tuple(parameter.shape) if name in given else form_of(exact, name, copies.dim())
            parameter.grad = copies.grad.sum_to_size(form).view(parameter.shape)
            terms[name] = squares[name].sum_to_size(form).sqrt().view(parameter.shape)
    for item in norms:
        terms |= _norm_terms(item, squares[id(item)])
    for item in anchors:
        square = squares[id(item)]
        if isinstance(item.module, Product):
            terms |= product_terms(item.module, square, exact, inputs)
            continue
        terms[f"{item.name}.bias"] = _sum_to_channels(square, item.module).sqrt()
        terms[f"{item.name}.weight"] = _weight_terms(item, square)
        for index, x in enumerate(inputs):
            if item.input is x:
                terms[input_name(index)] = _input_terms(item, square)
    return terms


def _add_frozen_norms(norms: list[_Seen], anchors: list[_Seen], parameters: dict, squares: dict) -> None:
    """Add what would flow back if the statistics were constants: the terms before a norm's gradient cancels
    them. What a norm in front of another one receives is noise of the other one's terms, which its gradient cancels in
    turn: the last norm comes first."""
    targets = {id(s): s.output for s in (*anchors, *norms)} | {n: c for n, c in parameters.items() if c.requires_grad}
    noise = {id(norm): torch.zeros_like(norm.gradient) for norm in norms}
    for norm in reversed(norms):
        if not norm.input.requires_grad:
            continue
        factor = _inverse_deviation(norm.module, norm.input.detach())
        if norm.module.weight is not None:
            factor = factor * _by_channel(norm.module.weight.detach(), norm.gradient, norm.module)
        flows = [norm.gradient, noise[id(norm)].sqrt() * _signs(norm.gradient)]
        for gradient in flows if bool(noise[id(norm)].any()) else flows[:1]:
            values = torch.autograd.grad(
                norm.input, list(targets.values()), gradient * factor, retain_graph=True, allow_unused=True
            )
            for key, value in zip(targets, values, strict=True):
                if value is not None and key in squares:
                    squares[key] += value.square()
                    if key in noise:
                        noise[key] += value.square()


def _signs(like: Tensor) -> Tensor:
    """Plus or minus one at random, always the same."""
    generator = torch.Generator(like.device).manual_seed(0)
    return torch.randint(0, 2, like.shape, generator=generator, device=like.device).to(like) * 2 - 1


# Of a convolution: the gradients of the same layer of squares, by squares.


def _weight_terms(item: _Seen, square: Tensor) -> Tensor:
    x = item.input.detach().square()
    if isinstance(item.module, nn.Linear):
        return (square.flatten(0, -2).T @ x.flatten(0, -2)).sqrt()
    weight = item.module.weight.detach().requires_grad_()
    result = torch.func.functional_call(item.module, {"weight": weight}, (x,))
    return torch.autograd.grad(result, weight, square)[0].sqrt()


def _input_terms(item: _Seen, square: Tensor) -> Tensor:
    weight = item.module.weight.detach().square()
    if isinstance(item.module, nn.Linear):
        return (square @ weight).sqrt()
    x = item.input.detach().requires_grad_()
    result = torch.func.functional_call(item.module, {"weight": weight}, (x,))
    return torch.autograd.grad(result, x, square)[0].sqrt()


_POSITIONS = {nn.InstanceNorm1d: 1, nn.InstanceNorm2d: 2, nn.InstanceNorm3d: 3}


def _positions(module: Any, like: Tensor) -> int:
    """How many dimensions are behind the channels of a layer's result, which some make without a batch, too."""
    if isinstance(module, nn.Linear):
        return 0
    if isinstance(module, nn.modules.conv._ConvNd):
        return len(module.kernel_size)
    return next((count for each, count in _POSITIONS.items() if isinstance(module, each)), like.dim() - 2)


def _sum_to_channels(value: Tensor, module: Any) -> Tensor:
    """One value for each channel of an anchor's or a norm's result."""
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        return value.flatten(0, -1 - len(module.normalized_shape)).sum(0)
    return value.movedim(-1 - _positions(module, value), -1).flatten(0, -2).sum(0)


def _by_channel(values: Tensor, like: Tensor, module: Any) -> Tensor:
    """A value for each channel, such as a norm's weight, in a shape that broadcasts against `like`."""
    if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        return values
    return values.reshape(-1, *(1,) * _positions(module, like))


def _norm_terms(item: _Seen, square: Tensor) -> dict[str, Tensor]:
    module, output = item.module, item.output.detach()
    weight = getattr(module, "weight", None)
    if weight is None:
        return {}
    bias, factor = getattr(module, "bias", None), _by_channel(weight.detach(), output, module)
    normalised = output if bias is None else output - _by_channel(bias.detach(), output, module)
    normalised = torch.where(factor == 0, 0.0, normalised / factor)
    terms = {f"{item.name}.weight": _sum_to_channels(square * normalised.square(), module).sqrt()}
    if bias is not None:
        terms[f"{item.name}.bias"] = _sum_to_channels(square, module).sqrt()
    return terms


def _normalized(module: Any) -> tuple[int, ...]:
    """The dimensions that a norm is over."""
    return tuple(range(-len(module.normalized_shape), 0))


def _inverse_deviation(module: Any, x: Tensor) -> Tensor:
    """1 / sqrt(variance + eps), in a shape that broadcasts against the norm's input."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        moved = None if module.training else module.running_var
        of_batch = [index for index in range(x.dim()) if index != 1]
        variance = x.var(of_batch, correction=0) if moved is None else moved
        variance = _by_channel(variance, x, module)
    elif isinstance(module, nn.GroupNorm):
        grouped = x.unflatten(1, (module.num_groups, -1))
        of_group = tuple(range(2, grouped.dim()))
        variance = grouped.var(of_group, correction=0, keepdim=True).expand(grouped.shape).flatten(1, 2)
    elif isinstance(module, nn.modules.instancenorm._InstanceNorm):
        variance = x.var(tuple(range(-_positions(module, x), 0)), correction=0, keepdim=True)
        if module.running_var is not None and not module.training:
            variance = _by_channel(module.running_var, x, module)
    elif isinstance(module, nn.LayerNorm):
        variance = x.var(_normalized(module), correction=0, keepdim=True)
    else:
        variance = x.square().mean(_normalized(module), keepdim=True)
    eps = module.eps if module.eps is not None else torch.finfo(x.dtype).eps
    return torch.rsqrt(variance + eps)
