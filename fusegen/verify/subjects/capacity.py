"""Whether a comparison fits the memory of the device, and the size that takes the place of one that does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from fusegen.ops.step import WIDTH
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.plan.regions.region import Region
from fusegen.plan.sizes.chain_sizes import Sizes, sizes, sizes_at

# What an emulated package may take: tensors are the host's.
EMULATED_BYTES = 4 << 30
# Of what is free. Blocks of the allocator are larger than their tensors, and those of freed tensors need not join: on
# an 80 GB GPU, 13.6 GiB of them were of no use to a tensor of 10.9 GiB.
_USABLE = 3 / 4
# Extents change by multiples of this, so that rows begin within vectors, lines and warps as they did.
_STEP = 64
# A weight with so many elements makes cuDNN access memory that is not its own. The weights of products have fewer, too.
LIBRARY_ELEMENTS = 1 << 31
# For each element of an activation: whatever the steps are, and for each of them.
_STEPS_BYTES, _STEP_BYTES = 80, 16


def capacity(device: str) -> int:
    """Bytes that tensors may take together on a device."""
    if device != "cuda":
        return EMULATED_BYTES
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    return int(_USABLE * (free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()))


def comparison_bytes(planned: ModulePlan, mode: Mode, size: Sizes) -> int:
    """About what a fused module, eager and double precision take side by side at most, with all their gradients.

    tests/verify/test_capacity.py measures it. Fused and eager hold each parameter and its gradient. Double precision
    holds both and the size of the gradient's terms, and judging takes copies.
    """
    width = WIDTH[mode.roles["parameter"]]
    return sum(each.weight * (4 * width + 38) + each.elements * each.bytes_ for each in _taken(planned, size))


def training_bytes(planned: ModulePlan, mode: Mode, size: Sizes) -> int:
    """Bytes that a few optimiser steps of both modules take side by side at most, with the copies that tell how far
    rounding carries them."""
    width = WIDTH[mode.roles["parameter"]]
    return sum(each.weight * (30 * width + 110) + each.elements * (each.bytes_ + 40) for each in _taken(planned, size))


Bytes = Callable[[ModulePlan, Mode, Sizes], int]


def why_too_large(planned: ModulePlan, mode: Mode, size: Sizes, bytes_: Bytes, available: int) -> str:
    """Why a size cannot be compared; "" where it can. bytes_: what that takes. available: the bytes that there are."""
    largest = max((each.weight for each in _taken(planned, size)), default=0)
    if largest >= LIBRARY_ELEMENTS:
        return f"a weight has {largest / 1e9:.1f} billion elements, and libraries take fewer than 2^31"
    needed = bytes_(planned, mode, size)
    return "" if needed <= available else f"it takes {needed / 1e9:.1f} GB of {available / 1e9:.1f}"


def fitting(plan: Plan, size: Sizes, fits: Callable[[Sizes], bool], alike: Callable[[Sizes], bool]) -> Sizes | None:
    """The size itself where it fits; else the largest with fewer input features, else fewer channels, else fewer rows
    that fits and is alike; None if there is none. fits: whether a size fits, and then each smaller one. alike: whether
    a size serves the same purpose."""
    if fits(size):
        return size
    found = (_largest(count, smaller, fits) for count, smaller in _directions(plan, size))
    return next((each for each in found if each is not None and alike(each)), None)


def _directions(plan: Plan, size: Sizes) -> Iterator[tuple[int, Callable[[int], Sizes]]]:
    """For each extent that the spec leaves open: how many sizes there are with less of it, and the size of a number
    below that, in falling order."""
    wanted = {
        "rows": size.rows,
        "source": size.source or 1,
        "channels": size.channels,
        "groups": size.free_groups(plan),
    }
    for name in ("source", "channels", "rows"):

        def smaller(index: int, name: str = name) -> Sizes:
            return sizes(plan, **{**wanted, name: wanted[name] - _STEP * (index + 1)})

        count = (wanted[name] - 1) // _STEP
        if count and smaller(0).symbols != size.symbols:
            yield count, smaller


def _largest(count: int, smaller: Callable[[int], Sizes], fits: Callable[[Sizes], bool]) -> Sizes | None:
    """The first of `count` sizes that fits."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(smaller(middle)) else (middle + 1, high)
    return smaller(low) if low < count else None


class _Taken(NamedTuple):
    """What a region holds. weight: elements of its anchor's. elements: of an activation. bytes_: for each of these."""

    weight: int
    elements: int
    bytes_: int


def _taken(planned: ModulePlan, size: Sizes) -> Iterator[_Taken]:
    for region in planned.regions:
        if region.plan is None:
            yield _taken_by_layer(planned, region, size)
        else:
            own = sizes_at(region.plan, size.symbols)
            yield _Taken(_weight(region.plan, own), _elements(region.plan, own), _element_bytes(region.plan))


def _taken_by_layer(planned: ModulePlan, region: Region, size: Sizes) -> _Taken:
    """Of a layer that PyTorch calls."""
    step: Any = region.steps[0]
    source, made = map(size.number, region.channels)
    weight = source * made if step.anchor else 0
    if step.anchor and step.spatial:
        kernel = step.kernel_size if isinstance(step.kernel_size, tuple) else (step.kernel_size,) * step.spatial
        weight = weight * math.prod(map(size.number, kernel)) // size.number(step.groups or 1)
    elements = math.prod(map(size.number, planned.shapes[region.results[0]]))
    return _Taken(weight, elements, _STEPS_BYTES + _STEP_BYTES)


def _weight(plan: Plan, size: Sizes) -> int:
    """Elements of the anchor's weight."""
    return 0 if plan.chain.anchor is None else plan.chain.anchor.weight_elements(size.symbols)


def _elements(plan: Plan, size: Sizes) -> int:
    """Of an activation, or of an input if one is larger."""
    shapes = [[size.number(dim) for dim in given.shape] for given in plan.chain.inputs]
    return max(size.rows * size.channels * plan.chain.number_of_parts, *map(math.prod, shapes))


def _element_bytes(plan: Plan) -> int:
    """For each element of an activation: double precision keeps what each step returns, and makes copies of parameters
    and inputs."""
    chain = plan.chain
    return _STEPS_BYTES + _STEP_BYTES * len(plan.spec.chain) + 24 * len(chain.parameters) + 40 * (len(chain.inputs) - 1)
