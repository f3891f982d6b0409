"""Chains whose rows have several dimensions, as a norm over [positions, features] of [batch, positions, features] has.

The channels of such a chain are all elements of these trailing dimensions: to the graph and to kernels it is one over
[rows, channels]. A call gives the tensors as views of that, and repeats what varies over some of the trailing
dimensions alone.
"""

from __future__ import annotations

from typing import Any

from fusegen.chain.symbols import shape_of
from fusegen.ir.axes import Dim


def shape_of_norm(step: Any, spec: Any) -> tuple[Dim, ...] | None:
    """The dimensions that a step normalises over, where it says which."""
    return shape_of(spec, getattr(step, "normalized_shape", None))


def wanted_dimensions(step: Any, spec: Any) -> int | None:
    """How many trailing dimensions have to be the channels of a step; None where it may be any number."""
    given = shape_of_norm(step, spec)
    if given is not None:
        return len(given)
    of_channels = step.needs_elements and not step.draws
    return 1 if step.anchor or step.divides or of_channels else None


def trailing_dimensions(spec: Any) -> int:
    """How many are the channels of a chain: 1, where no norm has more."""
    found = [shape_of_norm(step, spec) for step in spec.chain if step is not None]
    return max((len(shape) for shape in found if shape), default=1)
