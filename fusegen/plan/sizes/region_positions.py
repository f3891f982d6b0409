"""Sizes of a module of several regions of images: those of all values, step by step from those of its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from fusegen.chain import shape as chain_shape
from fusegen.ir.axes import Dim, dividend
from fusegen.ir.multiples import factors, value_of
from fusegen.plan.modules.module import ModulePlan, PlannedRegion
from fusegen.plan.regions.region import Shape
from fusegen.plan.regions.rows_of_images import RowFrame
from fusegen.plan.sizes.positions import unequal

_MOST = 256
"""Positions of one dimension that are tried."""
_WIDTHS = 64
"""Channels that are tried for a norm over positions whose weight has as many elements as there are channels."""


def symbols_of_images(planned: ModulePlan, rows: int, source: int, channels: int, groups: int) -> dict[str, int]:
    """Values of all symbols: about so many rows in the region that has most, and channels that all groups divide. The
    positions are those of the spec where no others are found: of larger images than are tried, or for inputs whose
    sizes are numbers."""
    spec = planned.spec
    symbols = {name: each.typical for name, each in spec.arguments.items() if each.type == "int"}
    symbols |= _channels(planned, source, channels, groups, symbols)
    batch, _, *positions = next(iter(spec.inputs.values()))
    symbols[str(batch)], wanted = unequal(rows, planned.spatial)
    found = _least(planned, symbols, list(map(str, positions)), max(wanted))
    if found is None:
        images = [shape[2:] for shape in spec.inputs.values() if len(shape) == planned.spatial + 2]
        given = {str(dim) for dims in images for dim in dims if isinstance(dim, str)}
        return {**spec.dims, **symbols, **{dim: spec.dims[dim] for dim in given}}
    return {**spec.dims, **found}


def _channels(
    planned: ModulePlan, source: int, channels: int, groups: int, symbols: Mapping[str, int]
) -> dict[str, int]:
    """Of the first input, and of all others; and numbers of groups."""
    steps, found = planned.spec.chain, dict[str, int]()
    counts: list[Dim] = [step.groups for step in steps if step.spatial and step.anchor]
    counts += [count for region in planned.regions for count in region.group_counts]
    widths = [dim for region in planned.regions for dim in region.channels]
    widths += [shape[1] for shape in planned.spec.inputs.values() if len(shape) == planned.spatial + 2]
    names = list(dict.fromkeys(name for name in (factors(dim)[1] for dim in widths) if name in planned.spec.dims))
    following = made_channels(planned)
    found |= fixed_channels(planned)
    names = [name for name in names if name not in following and name not in found]
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


def made_channels(planned: ModulePlan) -> set[str]:
    """The symbols of channels that steps called by PyTorch make of other sizes: with_positions() finds their values."""
    made, given = set[str](), set[str | None]()
    for region in planned.regions:
        given |= {factors(dim)[1] for dim in region.channels} - made
        if any(step.width_key and step.width_follows for step in _called(region)):
            shape = planned.shapes[region.results[0]]
            width = shape[1 if planned.has_images and len(shape) > 2 else -1]
            made |= {width} - given if isinstance(width, str) else set()
    return made


def fixed_channels(planned: ModulePlan) -> dict[str, int]:
    """The symbols of channels that a step takes some of, and of how many these are, with what the spec says: other
    sizes may not fit together."""
    dims: list[Dim] = []
    for region in planned.regions:
        for step in _called(region):
            if not step.width_follows:
                dims += (step.start, step.length, *region.channels)
    names = {factors(dim)[1] for dim in dims} & planned.spec.dims.keys()
    return {name: planned.spec.dims[name] for name in names if name is not None}


def _least(
    planned: ModulePlan, symbols: Mapping[str, int], positions: Sequence[str], wanted: int
) -> dict[str, int] | None:
    """The values of all symbols for the least positions of the first input of which some value has as many as wanted in
    a dimension; then each dimension has another size, as far as all values allow it."""
    sources = {next(iter(region.inputs)) for region in planned.regions}  # those of other inputs are what `other` is for
    inputs = list(planned.spec.inputs.items())[1:]
    several = any(len(shape) == planned.spatial + 2 for name, shape in inputs if name in sources)
    for size in range(1, _MOST):
        for other in range(1, 2 * size + 4 if several else 2):
            for widths in _widths(planned, symbols):
                given = {**symbols, **widths, **dict.fromkeys(positions, size)}
                found = _walked(planned, given, other)
                if found is None or max(map(found.__getitem__, _symbols(planned))) < wanted:
                    continue
                for index, name in enumerate(positions[1:], 1):
                    larger = ({**given, name: size + more} for more in range(index, _MOST // 8))
                    made = ((each, _walked(planned, each, other)) for each in larger)
                    given, found = next((pair for pair in made if pair[1] is not None), (given, found))
                return found
    return None


def _widths(planned: ModulePlan, symbols: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Other values of the symbols of channels that are the size of a norm over positions, too: as many."""
    yield {}
    given = [getattr(step, "normalized_shape", None) or () for region in planned.regions for step in _called(region)]
    given += [region.frame.features for region in planned.regions if region.frame is not None]
    names = {dim for shape in given for dim in shape if isinstance(dim, str) and dim in symbols}
    channels = {factors(region.channels[1])[1] for region in planned.regions}
    if names & channels:
        yield from (dict.fromkeys(names, count) for count in range(1, _WIDTHS))


def _called(region: PlannedRegion) -> Sequence:
    return region.steps if region.is_called else ()


def _symbols(planned: ModulePlan) -> set[str]:
    """The symbols of positions."""
    spatial = {name: region.spatial for region in planned.regions for name in region.inputs}
    shapes = [planned.shapes[name][2:] for name, count in spatial.items() if len(planned.shapes[name]) == count + 2]
    return {dim for shape in shapes for dim in shape if isinstance(dim, str)}


def with_positions(planned: ModulePlan, symbols: Mapping[str, int]) -> dict[str, int]:
    """The values of all symbols, with those of values between regions. Raises ValueError where those of the spec do not
    fit together."""
    found = _walked(planned, symbols, 1)
    if found is None:
        raise ValueError(f"{planned.spec.name}: the positions of its inputs do not fit together")
    return found


def _walked(planned: ModulePlan, symbols: Mapping[str, int], other: int) -> dict[str, int] | None:
    """The values of all symbols; None where a region has no result, or values that meet have other sizes. other: of
    positions of inputs that regions begin with besides the first."""
    found = dict(symbols)
    known = chain_shape.KnownSizes(found, planned.shapes)
    for region in planned.regions:
        source, *others = region.inputs
        given = [_value(dim, found, other) for dim in planned.shapes[source]]
        shape: chain_shape.Shape | None = chain_shape.Shape.of(given, region.spatial)
        if region.frame is not None and not _seen(region.frame, given, found):
            return None
        if shape is not None and not region.is_called:
            shape = shape.with_channels(_value(region.channels[1], found, other))
        inside = shape  # of all values but that which the last step may make of images
        for step in region.steps:
            shape = shape and step.shape_behind(shape, known)
            inside = inside if step.ends_region(region.spatial) else shape
        if shape is None or inside is None:
            return None
        sizes, last = _numbers(inside), _numbers(shape)
        if min(sizes + last) < 1 or not _fits(planned.shapes[region.results[-1]], last, found):
            return None
        if not all(_fits(planned.shapes[name], sizes, found) for name in region.results[:-1]):
            return None
        of_positions = sizes[2:] if region.spatial else []
        if not all(_fits(planned.shapes[name][2:], of_positions, found) for name in others):
            return None
    return found


def _seen(frame: RowFrame, sizes: Sequence[int], found: dict[str, int]) -> bool:
    """Whether the last sizes of images are the features of a region's rows, whose number is noted."""
    *rows, _ = sizes[: len(sizes) - len(frame.features) + 1]
    last = sizes[len(rows) :]
    found[frame.rows] = math.prod(rows)
    return [_value(dim, found, size) for dim, size in zip(frame.features, last, strict=True)] == [*last]


def _numbers(shape: chain_shape.Shape) -> list[int]:
    """Its sizes, with 0 for one that nobody can tell."""
    return [size if isinstance(size, int) else 0 for size in shape.sizes()]


def _value(dim: Dim, found: dict[str, int], other: int) -> int:
    """A size, and `other` for a symbol without a value, which has that from now on."""
    name = factors(dim)[1]
    if name is not None and dividend(dim) is None:
        found.setdefault(name, other)
    return value_of(dim, found)


def _fits(shape: Shape, sizes: Sequence[int], found: dict[str, int]) -> bool:
    """Whether a value has these sizes, or one element in place of some. Its symbols without a value get them."""
    if len(shape) != len(sizes):
        return True  # it is of other dimensions, which its own region looks at
    for dim, size in zip(shape, sizes, strict=True):
        own = found.setdefault(dim, size) if isinstance(dim, str) and dim == factors(dim)[1] else value_of(dim, found)
        if own not in (size, 1):
            return False
    return True
