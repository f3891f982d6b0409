"""The bytes that a chain moves in a training step: as PyTorch's operators one by one, and as its plan says.

Of operators it is what each has to move at least: operands read once and the result written once; backward the
gradient, what the formula needs of the operands, and the gradients. The matrix products are on neither side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fusegen.ops.step import WIDTH, Step
from fusegen.plan.model import Mode, Program
from fusegen.plan.plan import Plan
from fusegen.plan.summary import kernel_bytes

_SUMS = ("add", "sub")
_PRODUCTS = ("mul", "div", "minimum", "maximum")


@dataclass(frozen=True)
class Saving:
    """Bytes of one call, forward and backward."""

    eager: int
    fused: int

    @property
    def bytes(self) -> int:
        return self.eager - self.fused

    def __add__(self, other: Saving) -> Saving:
        return Saving(self.eager + other.eager, self.fused + other.fused)

    def __str__(self) -> str:
        return f"{amount(self.bytes)} of {amount(self.eager)}"


def saving(plan: Plan, rows: int, channels: int, dtype: torch.dtype) -> Saving | None:
    """At these sizes, which are the plan's; None if the dtype has no kernels."""
    name = str(dtype).removeprefix("torch.")
    mode = next((mode for mode in plan.modes if set(mode.roles.values()) == {name}), None)
    if mode is None:
        return None
    variant = plan.variants[0]
    fused = sum(_bytes(plan, mode, program) for program in (variant.forward, variant.backward))
    full = rows * channels * WIDTH[name]
    return Saving(_eager(plan.spec.chain) * full, fused)


def amount(count: int) -> str:
    """Bytes for people: 1.5 MB."""
    value, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while abs(value) >= 1000:
        value, unit = value / 1000, next(units)
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"


def _bytes(plan: Plan, mode: Mode, program: Program) -> int:
    """Of the schedule that moves least."""
    schedules = [sum(kernel_bytes(plan, mode, kernel) for kernel in each.kernels) for each in program.schedules]
    return min(schedules) + sum(kernel_bytes(plan, mode, kernel) for kernel in program.scalar_reductions)


def _eager(chain: Sequence[Step]) -> int:
    """How many tensors of full size PyTorch's operators read and write, forward and backward."""
    count, is_full = 0, True
    for step in chain:
        operand = getattr(step, "value", None) is not None or getattr(step, "input", None) is not None
        if step.op == "linear" or not (is_full or operand):
            continue  # a product, or one value for each row
        learnt = getattr(step, "parameter", None) is not None
        if hasattr(step, "keepdim"):
            count, is_full = count + 1 + 2, False  # the result is small; backward it is spread over the operand
        elif step.op in _SUMS:
            count, is_full = count + (3 if operand else 2 + learnt), True  # backward the gradient is passed on
        elif step.op in _PRODUCTS:
            count, is_full = count + (3 + 5 if operand else 2 + 2 + 2 * learnt), True
        else:
            count += 2 + 3
    return count
