"""Regions beside the first input: of a condition [batch, features], where the first input is [batch, positions, ...].

Their values have fewer rows. They are operands of steps with all rows, as further inputs of such shapes are.
"""

from __future__ import annotations

from fusegen.chain import shape as chain_shape
from fusegen.plan.regions.region import Shape


def why_no_region(shape: Shape, first: Shape, spatial: int, of_first: int) -> str | None:
    """Why a region cannot begin with an input. first: the shape of the first input. spatial, of_first: how many
    dimensions of positions both have."""
    rows, wanted = shape[:-1], first[:-1]
    if of_first and not spatial:
        wanted = first[:1]
        fits = rows == wanted
    elif spatial:  # each convolution makes positions of its own
        rows, wanted = shape[:1] + shape[2:], first[:1] + first[2:]
        fits = shape[:1] == first[:1] and len(shape) == len(first) and all(isinstance(dim, str) for dim in rows)
    else:
        fits = rows == wanted or can_broadcast(shape, first)
    have, want = (f"[{', '.join(map(str, each))}]" for each in (rows, wanted))
    return None if fits else f"{have} and not {want}"


def can_broadcast(shape: Shape, first: Shape) -> bool:
    """Whether a region can begin with an input of this shape, whose rows are not those of the first input: what it
    makes has to broadcast to these. Where dimensions are 1, one alone is not."""
    rows = [dim for dim in shape[:-1] if dim != 1]
    if not rows or None in shape or (len(rows) > 1 and len(rows) + 1 < len(shape)):
        return False
    whole = chain_shape.Shape.of(first)
    return (
        len(first) > 2 and whole.broadcast((*shape[:-1], first[-1]), lambda index, dim: first[index] == dim) is not None
    )


def lacks_dimensions(shape: Shape, first: Shape) -> bool:
    """Whether a value is [batch, channels] beside more dimensions, so that PyTorch would not broadcast it."""
    return 2 == len(shape) < len(first) and shape[0] == first[0] and shape[0] != first[-2]


def without_ones(shape: Shape, source: Shape) -> Shape:
    """The shape of an input of a region in that region's own spec. source: the shape that the region begins with, whose
    rows there are none of 1: a call gives them as leading dimensions."""
    ones = {index - len(source) for index, dim in enumerate(source[:-1]) if dim == 1}
    sizes = {index - len(shape): dim for index, dim in enumerate(shape)}
    if any(sizes.get(index, 1) != 1 for index in ones):
        return shape
    return tuple(dim for index, dim in sizes.items() if index not in ones)
