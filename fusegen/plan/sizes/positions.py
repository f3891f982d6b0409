"""Sizes of images: a batch and positions of which the result has about as many as are wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fusegen.chain.anchors import Convolution, Sizing
from fusegen.ir.axes import Dim
from fusegen.ir.multiples import factors
from fusegen.plan.modules.plan import Plan


def convolution_of(plan: Plan) -> Convolution:
    """The convolution that a plan's chain begins with."""
    assert plan.chain.convolution is not None
    return plan.chain.convolution


def result_positions(plan: Plan, given: Sequence[int], symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The positions of the result, for the positions `given` of the first input and values of the spec's symbols."""
    anchor = plan.chain.anchor
    return tuple(given) if anchor is None else anchor.positions(given, lambda each: _number(each, symbols))


def symbols_of_images(plan: Plan, rows: int, channels: int) -> dict[str, int]:
    """Values of all symbols where the chain begins with an input: about so many rows, and channels."""
    chain, spec = plan.chain, plan.spec
    symbols = {name: each.typical for name, each in spec.arguments.items() if each.type == "int"}
    number, symbol = factors(chain.channels)
    multiple = _groups(plan, symbols)
    if symbol is not None:
        symbols.setdefault(symbol, max(1, channels // (number * multiple)) * multiple)
    (name, _, *positions) = chain.inputs[0].shape
    batch, wanted = unequal(rows, chain.spatial)
    given = _with_windows(plan, wanted, symbols, result=lambda each: each)
    symbols |= {str(name): batch, **dict(zip(map(str, positions), given, strict=True))}
    return {**spec.dims, **symbols}


def symbols_of_convolution(plan: Plan, rows: int, source: int, channels: int) -> dict[str, int]:
    """Values of all symbols: about so many rows of the result, channels of the input and of the result. Where an input
    has numbers of positions, so has the result."""
    made, spec = convolution_of(plan), plan.spec
    symbols = {name: each.typical for name, each in spec.arguments.items() if each.type == "int"}
    if isinstance(made.groups, str) and made.groups not in symbols:  # those of a depthwise convolution are a size, too
        symbols[made.groups] = source
    groups = math.lcm(_number(made.groups, symbols), _groups(plan, symbols))
    for dim, count in ((made.width, source), (made.channels, channels)):
        number, symbol = factors(dim)
        if symbol is not None:
            symbols.setdefault(symbol, max(1, count // (number * groups)) * groups)
    batch, wanted = unequal(rows, made.dimensions)
    (name, _, *positions) = plan.chain.inputs[0].shape
    others = [dim for each in plan.chain.inputs[1:] for dim in each.shape[-made.dimensions :]]
    fixed = any(isinstance(dim, int) and dim != 1 for dim in others)
    given = tuple(spec.dims[str(dim)] for dim in positions) if fixed else _least_input(plan, wanted, symbols)
    symbols |= {str(name): batch, **dict(zip(map(str, positions), given, strict=True))}
    return {**spec.dims, **further_positions(plan, given, symbols), **symbols}


def _groups(plan: Plan, symbols: Mapping[str, int]) -> int:
    """What the channels are a multiple of, so that the groups of all norms divide them."""
    return math.lcm(*(_number(count, symbols) for count in plan.chain.group_counts))


def unequal(rows: int, dimensions: int) -> tuple[int, list[int]]:
    """A batch and positions of so many dimensions, of odd and unequal lengths as the rows are."""
    batch = max(1, round(rows ** (1 / (dimensions + 1))))
    rest, wanted = max(1, rows // batch), []
    for left in range(dimensions, 0, -1):
        wanted.append(but_two(max(1, round(rest ** (1 / left))), left))
        rest = max(1, rest // wanted[-1])
    return batch, wanted


def but_two(count: int, dimensions: int) -> int:
    """So many positions of the first of some dimensions, or more. On a CPU PyTorch's gradient of the weight of a
    conv3d in bfloat16 is wrong where the first has two: oneDNN sums what it has not written."""
    return 3 if dimensions == 3 and count == 2 else count


def _least_input(plan: Plan, wanted: Sequence[int], symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The least positions of an input that the layer takes, and of which the result has as many as wanted."""
    made = convolution_of(plan)
    given = [max(1, 1 + _number(padding, symbols)) for padding in made.padding]
    given[0] = but_two(given[0], len(given))
    for index, count in enumerate(wanted):
        while result_positions(plan, given, symbols)[index] < count:
            given[index] += 1
    return _with_windows(plan, given, symbols, result=lambda each: result_positions(plan, each, symbols))


def _with_windows(
    plan: Plan, given: Sequence[int], symbols: Mapping[str, int], result: Callable[[Sequence[int]], Sequence[int]]
) -> tuple[int, ...]:
    """The least positions of an input, at least as many as `given`, of which the result has a window in each dimension.
    result: its positions."""
    found = list(given)
    for index in range(len(found)):
        while plan.chain.result.stored(result(found), lambda each: _number(each, symbols))[index] < 1:
            found[index] += 1
    return tuple(found)


def further_positions(plan: Plan, given: Sequence[int], symbols: Mapping[str, int]) -> dict[str, int]:
    """Symbols of the result's positions, which inputs of its shape have. given: the positions of the first input."""
    own, result = set(plan.chain.inputs[0].shape), result_positions(plan, given, symbols)
    found: dict[str, int] = {}
    for each in plan.chain.inputs[1:]:
        pairs = zip(each.shape[::-1], result[::-1], strict=False)
        found |= {dim: size for dim, size in pairs if isinstance(dim, str) and dim not in own}
    return found


def _number(value: Sizing | Dim, symbols: Mapping[str, int]) -> int:
    return value if isinstance(value, int) else symbols[value]
