"""Options of layers whose results see a window of positions: convolutions and pooling."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Annotated

from pydantic import Field

from fusegen.chain.shape import Role, Shape, Sizes, certain
from fusegen.ops.step import Step
from fusegen.spec.arguments import MAX_RANK
from fusegen.spec.base import Listing, Plain, PositiveInt
from fusegen.spec.names import Identifier

Count = Annotated[int, Field(ge=0, lt=2**31), Plain("a whole number")]
# A number or an argument of type int, or one for each dimension of positions.
_Entries = Annotated[Listing[PositiveInt | Identifier], Field(min_length=1, max_length=MAX_RANK)]
Extents = PositiveInt | Identifier | _Entries
_CountEntries = Annotated[Listing[Count | Identifier], Field(min_length=1, max_length=MAX_RANK)]
Counts = Count | Identifier | _CountEntries
Number = Callable[[int | str], int | None]
"""What a size of a spec, or an argument of type int, stands for; None where nobody can tell."""
Option = int | str | tuple[int | str, ...]

_WIDTH = 84  # of lines in a constructor


def text(value: Option) -> str:
    """An option as Python source in the constructor."""
    if isinstance(value, tuple):
        return f"({', '.join(map(str, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def entries(value: Option, spatial: int, number: Number) -> tuple[int, ...] | None:
    """An option for each dimension of positions; None where it has another number of them, or a size is unknown.

    number: what an entry stands for.
    """
    found = [number(each) for each in (value if isinstance(value, tuple) else (value,) * spatial)]
    known = tuple(each for each in found if each is not None)
    return known if len(known) == len(found) == spatial else None


def known(options: Sequence[Option], spatial: int, number: Number) -> list[tuple[int, ...]] | None:
    """`entries` of each option; None where one has none."""
    found = [entries(each, spatial, number) for each in options]
    there = [each for each in found if each is not None]
    return there if len(there) == len(found) else None


def construction(name: str, layer: str, arguments: str) -> list[str]:
    """Lines of the constructor that make a layer. name: the attribute. layer: the class. arguments: Python source."""
    made = f"self.{name} = {layer}("
    if len(made + arguments) < _WIDTH:
        return [f"{made}{arguments})"]
    inside = textwrap.wrap(f"{arguments},", _WIDTH, break_on_hyphens=False)
    return [made, *(f"    {line}" for line in inside), ")"]


class OfWindows(Step):
    """A step whose results see windows of positions, or of the channels of rows, which are the only positions then."""

    def positions_behind(self, given: Sequence[int], number: Number) -> tuple[int, ...] | None:
        """The sizes of positions behind it for those in front, less than one where it has no result; None where nobody
        can tell. number: what a size of the spec stands for."""
        raise NotImplementedError

    def shape_behind(self, shape: Shape, sizes: Sizes) -> Shape | None:
        role = Role.POSITION if shape.spatial else Role.CHANNEL
        given = shape.sizes(role)
        numbers = [sizes.number(certain(size)) for size in given if size is not None]
        known = [number for number in numbers if number is not None]
        found = self.positions_behind(known, sizes.number) if len(known) == len(given) else None
        if found is None or min(found) < 1:
            return None
        made = [sizes.named(size, role, index, given[index]) for index, size in enumerate(found)]
        return shape.with_positions(made) if shape.spatial else shape.with_channels(made[0])
