"""Sizes that are a multiple of a symbol's, such as "2 * hidden": the width of what is divided into equal parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fusegen.ir.axes import Dim, dividend

_TIMES = " * "
_OF_SEVERAL = "*"


def times(factor: int, dim: Dim) -> Dim:
    """`factor` of a size: a number, or the text "2 * hidden"."""
    inner, name = factors(dim)
    if name is None:
        return factor * inner
    return name if factor * inner == 1 else f"{factor * inner}{_TIMES}{name}"


def factors(dim: Dim) -> tuple[int, str | None]:
    """The number and the symbol whose product a size is; None where it is a number alone."""
    if isinstance(dim, int):
        return dim, None
    number, found, name = dim.partition(_TIMES)
    return (int(number), name) if found else (1, dim)


def product(dims: Sequence[Dim]) -> Dim:
    """The size of several dimensions as one: a number, or a text such as "positions*features"."""
    numbers = [dim for dim in dims if isinstance(dim, int)]
    return math.prod(numbers) if len(numbers) == len(dims) else _OF_SEVERAL.join(map(str, dims))


def of_product(dim: Dim) -> tuple[Dim, ...]:
    """The dimensions whose product a size is; itself, where it is one of a single dimension."""
    if isinstance(dim, int) or _TIMES in dim:
        return (dim,)
    return tuple(int(each) if each.isdecimal() else each for each in dim.split(_OF_SEVERAL))


def part_of(dim: Dim, count: int) -> Dim | None:
    """The size of each of `count` equal parts; None where nobody can tell that there are such."""
    number, name = factors(dim)
    if number % count:
        return None
    return number // count if name is None else times(number // count, name)


def value_of(dim: Dim, symbols: Mapping[str, int]) -> int:
    """What a size is for these values of symbols."""
    over = dividend(dim)
    if over is not None:
        return value_of(over[0], symbols) // value_of(over[1], symbols)
    several = of_product(dim)
    if len(several) > 1:
        return math.prod(value_of(each, symbols) for each in several)
    number, name = factors(dim)
    return number if name is None else number * symbols[name]


def text_of(dim: Dim, names: Mapping[Dim, Dim]) -> str:
    """A size in generated code. names: what the code calls some sizes; others stay as they are."""
    number, name = factors(dim)
    if dim in names or name is None:
        return str(names.get(dim, dim))
    return str(times(number, names.get(name, name)))
