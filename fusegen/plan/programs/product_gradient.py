"""Where the gradient of the contraction's result may lie: in the memory of that result, which the backward pass alone
reads, once nobody else holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fusegen.chain.model import Chain
from fusegen.plan.launches.kinds import KERNELS
from fusegen.plan.programs.model import Kernel, Pass, Program, Schedule, Tensor

IN_PLACE = "the product's gradient may overwrite the product, where the graph is not retained and nobody else holds it"


def with_place(chain: Chain, backward: Program) -> tuple[Program, bool]:
    """The backward program, which tells where the gradient of the contraction's result lies if it reads the result; and
    whether it may write the gradient over the result."""
    if _product(chain, backward) is None:
        return backward, False
    why = why_apart(chain, backward)
    told = IN_PLACE if why is None else f"the product's gradient has memory of its own: {why}"
    return replace(backward, reasons=(*backward.reasons, told)), why is None


def why_apart(chain: Chain, backward: Program) -> str | None:
    """Why it may not, of a program that reads the result; None if it may.

    An element of the gradient depends on that element of the product, and on values that kernels before it, or earlier
    passes of the same one, have made of all of them. So the pass that stores it has to be the last one to read the
    product, and each element has to be of one thread, which reads it before it stores.
    """
    product = _product(chain, backward)
    assert product is not None
    gradient = next(each for each in backward.made if each.gradient_of == product.name)
    if (product.role, product.axes, product.parts) != (gradient.role, gradient.axes, gradient.parts):
        return "it has another dtype or shape"
    if backward.contiguous_layout:
        return "the kernels of contiguous images read elements for other threads"
    for schedule in backward.schedules:
        is_stored = False
        for kernel, each in _passes(schedule):
            if is_stored and _has(each.loads, product):
                return f"the schedule {schedule.kind} reads the product behind the pass that stores its gradient"
            if _has(each.stores, gradient):
                if not KERNELS[kernel.kind].in_place:
                    return f"a {kernel.kind} kernel stores it"
                is_stored = True
    return None


def _product(chain: Chain, backward: Program) -> Tensor | None:
    """The result of the contraction as the backward program reads it, if it does."""
    name = chain.contraction.result if chain.contraction else None
    return next((each for each in backward.given if each.name == name), None)


def _passes(schedule: Schedule) -> Iterator[tuple[Kernel, Pass]]:
    """What runs, in order."""
    for kernel in schedule.kernels:
        for each in kernel.passes:
            yield kernel, each


def _has(tensors: Sequence[Tensor], wanted: Tensor) -> bool:
    return any(each.whole.name == wanted.name for each in tensors)
