"""Targets of a loss, and its weights of channels. The checks know modules of floating-point tensors with gradients
alone: here such a module has its other inputs made from the first one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fusegen.chain.model import Chain
from fusegen.chain.shape import KnownSizes, Shape
from fusegen.ops.called_layer import CalledLayer
from fusegen.plan.modules.module import ModulePlan
from fusegen.verify.runs.run import unequal

Made = TypeVar("Made", bound=Callable[..., nn.Module])
_BITS = 12


def with_targets(plan: ModulePlan, made: Made) -> Made:
    """The class of a module, or what makes one, whose forward takes no targets and no weights of channels. What it
    makes has `known_targets`, all of these by name, which replace those that it would make in each call."""
    if not loss_inputs(plan):
        return made
    if not isinstance(made, type):
        raise TypeError("the original of a chain with a loss has to be a class")
    cls: type[nn.Module] = made

    def whole(module: Any, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        known = module.known_targets
        if known is None:
            known = make_loss_inputs(plan, module, inputs[0])
        given = iter(inputs)
        return [known[name] if name in known else next(given) for name in plan.spec.inputs]

    def forward(self: nn.Module, *inputs: Tensor) -> Tensor:
        return cls.forward(self, *whole(self, inputs))

    def fusegen_kernels(self: nn.Module, *inputs: Tensor) -> Any:
        return cls.fusegen_kernels(self, *whole(self, inputs))  # type: ignore[attr-defined]

    members: dict[str, Any] = {"forward": forward, "known_targets": None, "__module__": cls.__module__}
    if hasattr(cls, "fusegen_kernels"):
        members["fusegen_kernels"] = fusegen_kernels
    return type(cls.__name__, (cls,), members)  # type: ignore[return-value]


def loss_chain(plan: ModulePlan) -> Chain:
    """The chain that ends with the loss, if there is one: that of the last region."""
    return plan.plans[-1].chain


def loss_inputs(plan: ModulePlan) -> list[str]:
    """The names of the targets of the loss, and of its weights of channels."""
    chain = loss_chain(plan)
    weight = chain.result.loss and chain.result.loss.weight
    return [*chain.targets, *([weight] if weight in plan.spec.inputs else [])]


def make_loss_inputs(plan: ModulePlan, module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Them all by name, for a first input x."""
    found = dict.fromkeys(loss_chain(plan).targets, make_targets(plan, module, x))
    loss = loss_chain(plan).result.loss
    assert loss is not None
    if loss.weight is not None and loss.weight in plan.spec.inputs:
        found[loss.weight] = _class_weights(_shape_in_front(plan, module, x.detach())[1], x)
    return found


def _class_weights(channels: int, x: Tensor) -> Tensor:
    return unequal(torch.ones(channels, device=x.device, dtype=x.dtype))


def make_targets(plan: ModulePlan, module: nn.Module, x: Tensor) -> Tensor:
    """A target for each row, of the signs of its first values: rows in another order have theirs in that order, and
    rounding changes none. Some of them are the one that is ignored."""
    chain = loss_chain(plan)
    assert chain.result.loss is not None
    x = x.detach() if x.dim() > 1 else x.detach()[None]
    values = (x.flatten(1) if plan.spatial else x)[..., :_BITS]
    digits = (values > 0).long() * 2 ** torch.arange(values.shape[-1], device=x.device)
    targets = digits.sum(-1)
    ignored = targets % 7 == 3
    if plan.spatial and x.dim() != plan.spatial + 2:
        return targets  # whatever they are: the module refuses such an input
    _, channels, *positions = _shape_in_front(plan, module, x)
    if positions:
        count = torch.arange(math.prod(positions), device=x.device).view(1, *positions)
        targets, ignored = (each.view(-1, *[1] * len(positions)) for each in (targets, ignored))
        targets, ignored = targets + 5 * count, ignored | (count % 5 == 4)
    return torch.where(ignored, chain.result.loss.ignored, targets % channels)


def rows_of_mean(plan: ModulePlan, module: nn.Module) -> Callable[[Tensor], float] | None:
    """How many rows of a first input the mean loss is of, or what the weights of their targets are together: those
    whose target is not ignored. None of other chains."""
    loss = loss_chain(plan).result.loss
    if loss is None or loss.reduction != "mean":
        return None
    known = loss

    def counted(x: Tensor) -> float:
        made = make_loss_inputs(plan, module, x)
        targets = made[known.target]
        targets = targets[targets != known.ignored]
        if known.weight is None:
            return len(targets)
        path = plan.spec.state_dict.get(known.weight, known.weight)
        weights = made[known.weight] if known.weight in made else module.state_dict()[path]
        return float(weights[targets].sum())

    return counted


@torch.no_grad()
def _shape_in_front(plan: ModulePlan, module: nn.Module, x: Tensor) -> tuple[int, ...]:
    """The sizes of the value that the loss is of, [batch, channels, *positions], for one image or row of x.

    Of values whose region begins with another input than the first these are the sizes of what they meet.
    """
    first = next(iter(plan.spec.inputs))
    last = (1, *x.shape[1:]) if plan.spatial else (1, x.shape[-1])
    known = {first: last}
    for region in plan.regions:
        layer: Any = region.steps[0]
        shape = Shape.of(known.get(next(iter(region.inputs)), last), region.spatial)
        if layer.spatial or isinstance(layer, CalledLayer):
            shape = Shape.of(_behind(module, layer, shape.sizes()), region.spatial)
        elif layer.anchor and not layer.in_batches:
            shape = shape.with_channels(_width(module, layer))
        else:
            for step in region.steps:
                shape = step.shape_behind(shape, KnownSizes(shapes=known)) or shape
        last = tuple([size for size in shape.sizes() if isinstance(size, int)])
        parts = math.prod([step.number_of_parts for step in region.steps])
        if parts > 1:
            last = (last[0], last[1] // parts, *last[2:])
        known |= dict.fromkeys(region.results, last)
    return last


def _width(module: nn.Module, layer: Any) -> int:
    """The channels of what a linear layer or a product with a weight makes."""
    own = attrgetter(layer.name if layer.module else layer.parameter)(module)
    weight = own.weight if layer.module else own
    return weight.shape[1 if layer.op == "matmul" and not layer.transposed else 0]


def _behind(module: nn.Module, step: Any, sizes: Sequence[Any]) -> tuple[int, ...]:
    """The sizes of what a convolution, pooling or upsampling makes of such a value."""
    layer: Any = module.get_submodule(step.name)
    like = getattr(layer, "weight", None)
    given = torch.zeros((1, *sizes[1:])) if like is None else like.new_zeros((1, *sizes[1:]))
    return tuple(layer(given).shape)
