"""Sizes of a module of several regions of images: positions in front of each convolution, and behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fusegen.ir.axes import Dim, dividend
from fusegen.ir.multiples import factors
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.regions.region import Shape
from fusegen.plan.sizes.positions import unequal

_MOST = 256
"""Positions of one dimension that are tried."""


def symbols_of_images(planned: ModulePlan, rows: int, source: int, channels: int, groups: int) -> dict[str, int]:
    """Values of all symbols: about so many rows in the region that has most, and channels that all groups divide."""
    spec = planned.spec
    symbols = {name: each.typical for name, each in spec.arguments.items() if each.type == "int"}
    symbols |= _channels(planned, source, channels, groups, symbols)
    batch, _, *positions = next(iter(spec.inputs.values()))
    symbols[str(batch)], wanted = unequal(rows, planned.spatial)
    for index, (name, count) in enumerate(zip(positions, wanted, strict=False)):
        symbols |= _positions(planned, index, str(name), count, symbols)
    return {**spec.dims, **symbols}


def _channels(
    planned: ModulePlan, source: int, channels: int, groups: int, symbols: Mapping[str, int]
) -> dict[str, int]:
    """Of the first input, and of all others; and numbers of groups."""
    steps, found = planned.spec.chain, dict[str, int]()
    counts: list[Dim] = [step.groups for step in steps if step.spatial and step.anchor]
    counts += [count for plan in planned.plans for count in plan.chain.group_counts]
    widths = [dim for region in planned.regions for dim in region.channels]
    names = list(dict.fromkeys(name for name in (factors(dim)[1] for dim in widths) if name is not None))
    known = [symbols.get(str(count), count) for count in counts]
    multiple = math.lcm(*(count for count in known if isinstance(count, int)))
    for index, name in enumerate(names):
        size = channels if index or len(names) == 1 else source
        found[name] = max(1, size // multiple) * multiple
    for count in counts:
        of = dividend(count)
        free = of[1] if of is not None else count
        if isinstance(free, str) and free not in found and free not in symbols:
            found[free] = math.gcd(groups, *found.values())
    return found


def _positions(planned: ModulePlan, index: int, name: str, wanted: int, symbols: Mapping[str, int]) -> dict[str, int]:
    """Of one dimension the sizes of all values: of the first input the least for which every region has a position, and
    one has as many as wanted. Those of the spec where none is found: of larger images than are tried, or for inputs
    whose sizes are numbers."""
    dims = {_position(shape, index, planned.spatial) for shape in planned.spec.inputs.values()}
    for size in range(1, _MOST):
        for other in range(1, 2 * size + 4 if len(dims - {1}) > 1 else 2):
            found = {name: size}
            if _fits(planned, index, found, other, symbols) and max(found.values()) >= wanted:
                return found
    return {dim: planned.spec.dims[dim] for dim in dims if isinstance(dim, str)}


def with_positions(planned: ModulePlan, symbols: Mapping[str, int]) -> dict[str, int]:
    """The values of all symbols, with those of positions between regions. Raises ValueError where those of the spec do
    not fit together."""
    found = {**symbols}
    for index in range(planned.spatial):
        if not _fits(planned, index, found, 1, symbols):
            raise ValueError(f"{planned.spec.name}: the positions of its inputs do not fit together")
    return found


def _fits(planned: ModulePlan, index: int, found: dict[str, int], other: int, symbols: Mapping[str, int]) -> bool:
    """Notes how many positions each region has. Whether all have some, and those that meet have as many. other: of
    inputs that regions begin with besides the first."""

    def number(entry: Any) -> int:
        return entry if isinstance(entry, int) else symbols[entry]

    for region in planned.regions:
        source, *others = region.inputs
        dim = _position(planned.shapes[source], index, planned.spatial)
        size = dim if isinstance(dim, int) else found.setdefault(dim, other)
        for step in region.steps:
            if step.spatial:
                sizes = step.positions_behind((size,) * planned.spatial, number)
                size = sizes[index] if sizes is not None else 0
        for name in (*region.results, *others):
            dim = _position(planned.shapes[name], index, planned.spatial)
            own = dim if isinstance(dim, int) else found.setdefault(dim, size)
            if size < 1 or own not in (size, 1):
                return False
    return True


def _position(shape: Shape, index: int, spatial: int) -> Dim:
    """The dimension of a shape that broadcasts to images; 1 where it has none there."""
    at = len(shape) - spatial + index
    return shape[at] if at >= 0 else 1
