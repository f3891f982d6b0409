"""What a benchmark asks of a plan, be it that of one region or of several: modes, products, bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fusegen.bench.bytes import tail_bytes
from fusegen.bench.names import STEP
from fusegen.bench.work import Call, Work, contraction_work, convolution_work
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.plan.sizes.called_bytes import called_bytes
from fusegen.plan.sizes.chain_sizes import Sizes, sizes_at


class Portion(NamedTuple):
    """A region that has kernels, with its own mode and sizes."""

    plan: Plan
    mode: Mode
    sizes: Sizes


def mode_of(modes: Sequence[Mode], dtype: str) -> Mode | None:
    """The mode of a dtype outside of autocast."""
    return next((mode for mode in modes if mode.plain and mode.roles["activation"] == dtype), None)


def portions(planned: ModulePlan, mode: Mode, sizes: Sizes) -> list[Portion]:
    """The regions that have kernels, in order."""
    found = []
    for plan in planned.plans:
        own = mode if planned.single else mode_of(plan.modes, mode.roles["activation"])
        assert own is not None, "a region has every dtype of the whole"
        found.append(Portion(plan, own, sizes_at(plan, sizes.symbols)))
    return found


def why_no_precision(planned: ModulePlan) -> str | None:
    """Why a module cannot be told how float32 is multiplied."""
    called = [region for region in planned.regions if region.plan is None and region.steps[0].op == "linear"]
    if not called and not any(plan.chain.contraction for plan in planned.plans):
        return "the chain has no matrix product"
    if called:
        return "PyTorch makes the product of a layer that is a region alone"
    return None


def has_anchor(planned: ModulePlan) -> bool:
    """Whether there is a product or a convolution, which libraries make."""
    return any(step.anchor for step in planned.spec.chain)


def bytes_of_regions(planned: ModulePlan, mode: Mode, sizes: Sizes, what: str) -> tuple[int, ...]:
    """The fewest bytes that all regions move but for products and convolutions, by direction: what one leaves for
    another is written and read."""
    counts = [tail_bytes(*portion, what) for portion in portions(planned, mode, sizes)]
    dtype, called = mode.roles["activation"], [region for region in planned.regions if region.is_called]
    counts += [called_bytes(planned, region, sizes.symbols, dtype)[: len(counts[0])] for region in called]
    return tuple(map(sum, zip(*counts, strict=True)))


def products_work(
    planned: ModulePlan,
    mode: Mode,
    sizes: Sizes,
    original: nn.Module,
    inputs: Sequence[Tensor],
    grad_output: Tensor,
    what: str,
) -> Work | None:
    """The library calls that the fused module makes for its layers, on their own; None where it has none."""
    if planned.single:
        return contraction_work(planned.plans[0], mode, original, inputs, grad_output, what)
    calls = []
    for region in planned.regions:
        first = region.steps[0]
        if first.anchor:
            # In float32 the kernels add the bias, see docs/architecture.md.
            shape = [sizes.number(dim) for dim in planned.shapes[next(iter(region.inputs))]]
            if first.spatial:
                given = torch.randn(shape, device=inputs[0].device, dtype=inputs[0].dtype)
                calls.append(convolution_work(first, original, given, None, what).call)
                continue
            with_bias = region.plan is None or inputs[0].dtype.itemsize == 2
            channels = shape[1 if region.spatial else -1]
            rows = math.prod(shape) // channels
            calls.append(_product(*_operands(first, original, with_bias), rows, inputs[0], what))
    return Work(lambda: [call() for call in calls]) if calls else None


def _operands(step: Any, original: nn.Module, with_bias: bool) -> tuple[Tensor, Tensor | None]:
    """The weight of a linear or matmul step, [out_features, in_features], and its bias."""
    if step.op == "linear":
        layer: Any = original.get_submodule(step.name)
        weight, bias = layer.weight, layer.bias
    else:
        weight = original.get_parameter(step.parameter)
        weight = weight if step.transposed else weight.t()
        bias = None if step.bias is None else original.get_parameter(step.bias)
    return weight.detach(), bias.detach() if with_bias and bias is not None else None


def _product(weight: Tensor, bias: Tensor | None, rows: int, like: Tensor, what: str) -> Call:
    data, grad = (torch.randn(rows, width, device=like.device, dtype=like.dtype) for width in weight.shape[::-1])

    def forward() -> Tensor:
        return nn.functional.linear(data, weight, bias)

    def step() -> tuple[Tensor, ...]:
        return forward(), grad @ weight, grad.t() @ data

    return step if what == STEP else forward
