"""Where a value of one channel ends a region: the kernels of a region see [rows, channels] of one width.

Behind a reduction a value is [rows, 1]. An op that needs all of a row's elements takes that as a row of one element, in
a region of its own. An operand of another width begins a region, too, which takes the value for an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.chain.symbols import shape_of
from fusegen.ir.axes import Dim
from fusegen.ir.multiples import part_of

Width = Dim | None
"""The channels of a value: 1 behind a reduction; None where that has dropped the dimension, or is unknown."""


def widths(spec: Any, spatial: int = 0) -> tuple[list[Width], list[Width]]:
    """The channels of the running value in front of each step, and behind each. spec: a SpecModel or a PartialSpec.
    spatial: the number of dimensions of positions behind the channels."""
    known: dict[str, Width] = {
        name: width_of(shape or (), 0 if len(shape or ()) == 2 else spatial) for name, shape in spec.inputs.items()
    }
    parameters: dict[str, Width] = {}
    width: Width = next(iter(known.values()), None)
    front: list[Width] = []
    behind: list[Width] = []
    for step in spec.chain:
        if step is not None and step.from_ is not None:
            width = known.get(step.from_)
        front.append(width)
        if step is None:
            behind.append(width)
            continue
        name = getattr(step, "parameter", None)
        if name is not None and name not in parameters:
            parameters[name] = width_of(shape_of(spec, getattr(step, "shape", None)) or (), spatial)
        operand = parameters[name] if name is not None else operand_width(step, known)
        width = _behind(step, width, operand)
        behind.append(width)
        known.update((each, width) for each in step.saved)
    return front, behind


def width_of(shape: Sequence[Dim], spatial: int = 0) -> Width:
    """The channels of a shape: its last dimension, but for those of positions; of one without it, 1."""
    return shape[-1 - spatial] if len(shape) > spatial else 1


def row_width(shape: Sequence[Dim], first: Sequence[Dim]) -> Width:
    """The channels of an operand; 1 where it has not the rows of the first input, which no region begins with."""
    return width_of(shape) if shape[:-1] == first[:-1] else 1


def channels_behind_step(step: Any, channels: Width) -> Width:
    """The channels of a region behind a step; None where the spec does not say them."""
    if step.anchor:
        return getattr(step, "out_channels" if step.spatial else "out_features", None)
    return part_of(channels, step.number_of_parts) if step.divides and channels is not None else channels


def operand_of(step: Any) -> str | None:
    """The value or input that a step takes besides the running value."""
    return step.taken_value or getattr(step, "input", None) or getattr(step, "mask", None)


def operand_width(step: Any, known: dict[str, Width]) -> Width:
    return known.get(operand_of(step) or "", 1)


def is_row_boundary(step: Any, width: Width, view: Width) -> bool:
    """Whether a step takes a value of one channel for a row of one element. view: the channels of the region."""
    return width == 1 and view not in (1, None) and step.needs_elements and not step.takes_rows()


def is_width_boundary(step: Any, width: Width, view: Width, operand: Width) -> bool:
    """Whether the operand of a step has a width that the region has not, and the value one channel."""
    return width == 1 and operand not in (1, view, None) and view is not None and can_be_exchanged(step)


def can_be_exchanged(step: Any) -> bool:
    """Whether the operand of a step can be its running value."""
    plain = not any(getattr(step, key, None) for key in ("times", "plus", "detach", "mask"))
    return plain and hasattr(step, "swap") and not step.anchor


def _behind(step: Any, width: Width, operand: Width) -> Width:
    if step.anchor or step.divides:
        return channels_behind_step(step, width)
    if step.reduces_channels:
        return 1 if step.keepdim and width is not None else None
    return operand if width == 1 else width
