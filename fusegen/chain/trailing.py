"""Chains whose rows have several dimensions, as a norm over [positions, features] of [batch, positions, features] has.

The channels of such a chain are all elements of these trailing dimensions: to the graph and to kernels it is one over
[rows, channels]. A call gives the tensors as views of that, and repeats what varies over some of the trailing
dimensions alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.chain.inputs import Fits, Reach
from fusegen.chain.symbols import shape_of
from fusegen.ir.axes import Axes, Dim


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


def reach_of_trailing(shape: Sequence[Dim | None], count: int, trailing: int, fits: Fits) -> Reach | None:
    """As `reach`, of a running value with `count` dimensions, the last `trailing` of which are the channels. Whatever
    varies over some of the rows' dimensions, or of the channels', is spread."""
    missing = count - len(shape)
    if missing < 0:
        return None
    sizes = {index + missing: dim for index, dim in enumerate(shape)}
    if any(dim not in (1, None) and not fits(index, dim) for index, dim in sizes.items()):
        return None
    there = [index in sizes and (sizes[index] != 1 or fits(index, 1)) for index in range(count)]
    varies = [each and sizes.get(index) != 1 for index, each in enumerate(there)]
    rows, channels = slice(0, count - trailing), slice(count - trailing, count)
    names = [name for name, part in (("N", rows), ("C", channels)) if any(varies[part])]
    if not missing and all(there):
        names = ["N", "C"]  # as large as the running value, even where a size of that is 1
    parts = [part for name, part in (("N", rows), ("C", channels)) if name in names]
    whole = all(all(there[part]) for part in parts)
    return Reach(Axes.of(*names), None if whole or "N" not in names else "others")
