"""Sizes of a module, be it one region or several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fusegen.ir.axes import dividend
from fusegen.ir.multiples import factors, value_of
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.sizes.bytes import typical_symbols
from fusegen.plan.sizes.chain_sizes import Shape, Sizes, leading_sizes, sizes, sizes_at
from fusegen.plan.sizes.region_positions import fixed_channels, made_channels, symbols_of_images, with_positions


def module_sizes(planned: ModulePlan, rows: int, source: int, channels: int, groups: int) -> Sizes:
    """The nearest sizes that the spec allows."""
    if planned.single:
        return sizes(planned.plans[0], rows, source, channels, groups)
    return _sizes_of_regions(planned, rows, source, channels, groups)


def module_sizes_at(planned: ModulePlan, symbols: Mapping[str, int]) -> Sizes:
    """The sizes that the values of all symbols give; of several results the channels count together. Raises ValueError
    where the positions of images do not fit together."""
    return sizes_at(planned.plans[0], symbols) if planned.single else _regions_at(planned, symbols)


def several(planned: ModulePlan, shapes: Sequence[Shape]) -> list[Sizes]:
    """The nearest sizes to `shapes` that the spec allows, each once."""
    found = [module_sizes(planned, *shape) for shape in shapes]
    return list({tuple(sorted(each.symbols.items())): each for each in found}.values())


def module_typical(planned: ModulePlan) -> Sizes:
    """The sizes that the spec's `dims` and `typical` name."""
    return module_sizes_at(planned, typical_symbols(planned.spec))


def _sizes_of_regions(planned: ModulePlan, rows: int, source: int, channels: int, groups: int) -> Sizes:
    """The nearest sizes that the spec allows: all widths behind anchors are alike, and groups divide them."""
    spec = planned.spec
    if planned.spatial:
        return _regions_at(planned, symbols_of_images(planned, rows, source, channels, groups))
    given = next(iter(spec.inputs.values()))
    leading = given[:-1] if len(given) > 2 else ()
    symbols = fixed_channels(planned)
    made = made_channels(planned)
    counts = [count for region in planned.regions for count in region.group_counts]
    blocks = [parts[1] for parts in map(dividend, counts) if parts is not None]
    multiple = math.lcm(*(count for count in (*counts, *blocks) if isinstance(count, int)))
    channels = max(1, channels // multiple) * multiple

    def settle(dim: Any, value: int) -> int:
        number, name = factors(dim)
        if name is not None and (name not in spec.dims or name in made):
            return value  # of what a layer that PyTorch calls makes
        return number if name is None else number * symbols.setdefault(name, max(1, value // number))

    if leading:
        leading_sizes(leading, rows, symbols)
    else:
        settle(given[0], rows)
    settle(given[-1], source if counts == [] else channels)
    for step in spec.chain:
        for name in step.further_values:
            settle(spec.inputs.get(name, given)[-1], channels)
    for region in planned.regions:
        channels_here = settle(region.channels[1], channels)
        for count in region.group_counts:
            _, count = dividend(count) or (None, count)  # of blocks their width: any divisor, as a number of groups
            if isinstance(count, str):
                symbols[count] = math.gcd(symbols.get(count, groups), channels_here)
    typical = {name: size for name, size in typical_symbols(spec).items() if name not in made}
    return _regions_at(planned, {**typical, **symbols})


def _regions_at(planned: ModulePlan, symbols: Mapping[str, int]) -> Sizes:
    symbols = with_positions(planned, symbols)
    given = tuple(value_of(dim, symbols) for dim in next(iter(planned.spec.inputs.values())))
    widths = {name: region.width(name) for region in planned.regions for name in region.results}
    result = sum(value_of(widths[name], symbols) for name in planned.returned)
    if planned.spatial:
        batch, source, *positions = given
        return Sizes(symbols, math.prod((batch, *positions)), result, source, given, (batch, result, *positions))
    *rows, source = given
    return Sizes(symbols, math.prod(rows), result, source, *((given, (*rows, result)) if len(rows) > 1 else ()))
