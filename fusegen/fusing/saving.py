"""The bytes that a chain moves in a training step: by PyTorch's operators one by one, and as its plan says.

Matrix products and convolutions are on neither side: they are the same in both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fusegen.plan.composition import Planned, compiled
from fusegen.plan.model import Kernel
from fusegen.plan.plan import Plan
from fusegen.plan.sizes import is_built, kernel_bytes, typical

_PRODUCTS = (
    *(torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm),
    *(torch.ops.aten.convolution, torch.ops.aten.convolution_backward),
)


@dataclass(frozen=True)
class Saving:
    """Of one call, forward and backward: bytes, PyTorch's operators, and the kernels in their place."""

    eager: int
    fused: int
    operators: int = 0
    kernels: int = 0

    @property
    def bytes(self) -> int:
        return self.eager - self.fused

    def __add__(self, other: Saving) -> Saving:
        mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return Saving(*(a + b for a, b in zip(mine, others, strict=True)))

    def __str__(self) -> str:
        return f"{amount(self.bytes)} of {amount(self.eager)}"


def saving(counted: Counted, planned: Planned, dtype: torch.dtype) -> Saving | None:
    """Of a module whose operators were counted at the sizes of its plan; None if the dtype has no kernels."""
    found = [_moved(plan, dtype) for plan in compiled([planned])]
    if None in found:
        return None
    fused, kernels = (sum(each) for each in zip(*found, strict=True))
    return Saving(counted.bytes, fused, counted.operators, kernels)


def _moved(plan: Plan, dtype: torch.dtype) -> tuple[int, int] | None:
    """The bytes and the number of kernels of a training step."""
    name = str(dtype).removeprefix("torch.")
    mode = next((mode for mode in plan.modes if is_built(mode) and set(mode.roles.values()) == {name}), None)
    if mode is None:
        return None
    sizes = typical(plan)

    def moved(kernel: Kernel) -> int:
        return kernel_bytes(plan, mode, sizes, kernel)

    fused = kernels = 0
    for program in (plan.variants[0].forward, plan.variants[0].backward):
        # The schedule that moves least: which one runs, the sizes of the call decide.
        schedules = [[*each.kernels, *program.scalar_reductions] for each in program.schedules]
        least, count = min((sum(map(moved, run)), len(run)) for run in schedules)
        fused, kernels = fused + least, kernels + count
    return fused, kernels


def eager(module: nn.Module, inputs: Sequence[Tensor]) -> Counted:
    """What PyTorch's operators read and write in a training step, each tensor once for each operator that takes it.

    The module is moved to `meta`, and of no use any more.
    """
    made = module.to("meta").train().requires_grad_()
    given = [torch.empty_like(x, device="meta", requires_grad=True) for x in inputs]
    with Counted() as counted:
        result = made(*given)
    grad = torch.empty_like(result)
    with counted:
        result.backward(grad)
    return counted


class Counted(TorchDispatchMode):
    """Adds up the tensors of all operators but products and those that only view."""

    bytes = operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        written = [each.alias_info for each in func._schema.returns]
        views = any(each is not None and not each.is_write for each in written)
        if not views and func.overloadpacket not in _PRODUCTS:
            tensors = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, Tensor)]
            self.operators += 1
            self.bytes += sum(each.numel() * each.element_size() for each in tensors)
        return result


def amount(count: int) -> str:
    """Bytes for people: 1.5 MB."""
    value, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while abs(value) >= 1000:
        value, unit = value / 1000, next(units)
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"
