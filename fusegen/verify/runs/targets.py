"""Targets of a loss. The checks know modules of floating-point tensors alone: here such a module has its targets made
from its first input."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fusegen.chain.model import Chain
from fusegen.ir.multiples import factors
from fusegen.plan.modules.module import ModulePlan

Made = TypeVar("Made", bound=Callable[..., nn.Module])
_BITS = 12


def with_targets(plan: ModulePlan, made: Made) -> Made:
    """The class of a module, or what makes one, whose forward takes no targets. What it makes has `known_targets`,
    which replace those that it would make in each call."""
    targets = loss_chain(plan).targets
    if not targets:
        return made
    places = [index for index, name in enumerate(plan.spec.inputs) if name in targets]
    if not isinstance(made, type):
        raise TypeError("the original of a chain with a loss has to be a class")
    cls: type[nn.Module] = made

    def whole(module: Any, inputs: tuple[Tensor, ...]) -> list[Tensor]:
        if module.known_targets is None:
            targets = make_targets(plan, module, inputs[0])
        else:
            targets = module.known_targets
        found = list(inputs)
        for index in places:
            found.insert(index, targets)
        return found

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


def make_targets(plan: ModulePlan, module: nn.Module, x: Tensor) -> Tensor:
    """A target for each row, of the signs of its first values: rows in another order have theirs in that order, and
    rounding changes none. Some of them are the one that is ignored."""
    chain = loss_chain(plan)
    assert chain.result.loss is not None
    x = x.detach() if x.dim() > 1 else x.detach()[None]
    values = x.flatten(1)[:, :_BITS]
    digits = (values > 0).long() * 2 ** torch.arange(values.shape[1], device=x.device)
    targets = digits.sum(1)
    ignored = targets % 7 == 3
    if chain.spatial and x.dim() > chain.spatial + 2:
        return targets  # whatever they are: the module refuses such an input
    if chain.spatial:
        positions = _positions(plan, module, x)
        count = torch.arange(positions.numel(), device=x.device).view(1, *positions.shape)
        targets, ignored = (each.view(-1, *[1] * positions.dim()) for each in (targets, ignored))
        targets, ignored = targets + 5 * count, ignored | (count % 5 == 4)
    return torch.where(ignored, chain.result.loss.ignored, targets % _channels(plan, module, x))


def _channels(plan: ModulePlan, module: nn.Module, x: Tensor) -> int:
    """Of the value at the end, which may be a part of the result of a layer, or of the first input."""
    wanted = plan.regions[-1].channels[1]
    for region in plan.regions:
        step: Any = region.steps[0]
        if step.anchor and not step.in_batches and region.channels[1] == wanted:
            own = attrgetter(step.name if step.module else step.parameter)(module)
            weight = own.weight if step.module else own
            columns = step.op == "matmul" and not step.transposed
            width = own.out_channels if step.spatial else weight.shape[1 if columns else 0]
            return width // (region.plan.chain if region.plan else step).number_of_parts
    at = 1 if plan.spatial else -1
    (given, name), (number, other) = factors(next(iter(plan.spec.inputs.values()))[at]), factors(wanted)
    if other is None:
        return number
    return x.shape[at] * number // given if name == other else x.shape[at]


@torch.no_grad()
def _positions(plan: ModulePlan, module: nn.Module, x: Tensor) -> Tensor:
    """Of the shape of the positions of the value at the end, in images."""
    known = {next(iter(plan.spec.inputs)): x[:1]}
    value = x[:1]
    for region in plan.regions:  # those that begin with another input have the positions of what they meet
        layer: Any = region.steps[0]
        value = known.get(next(iter(region.inputs)), value)
        value = _behind(module, layer.name, value) if layer.spatial else value
        known |= dict.fromkeys(region.results, value)
    return value[0, 0]


def _behind(module: nn.Module, name: str, x: Tensor) -> Tensor:
    """What a convolution or pooling makes of images of such positions."""
    layer: Any = module.get_submodule(name)
    like = getattr(layer, "weight", x)
    return layer(like.new_zeros((1, getattr(layer, "in_channels", 1), *x.shape[2:])))
