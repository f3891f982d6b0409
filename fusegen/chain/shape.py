"""The dimensions of a chain's values as PyTorch has them, each with its role: what the graph's rows and channels are.

Kernels see [rows, channels]. One row is one index of the dimensions in front of the channels and of the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol, cast

from fusegen.ir.axes import Axes, Dim
from fusegen.ir.multiples import product, value_of

ROWS = "_rows"
"""The symbol of the rows where several dimensions have them, as behind a convolution or bmm."""


def certain(size: Dim | None) -> Dim:
    """The size, which only a chain with diagnostics can lack; these are all that it is good for then."""
    return cast(Dim, size)


class Sizes(Protocol):
    """What the sizes of a chain's values are."""

    def number(self, size: Dim) -> int | None:
        """What a size, or an argument of type int, stands for; None where nobody can tell."""

    def shape(self, name: str) -> Sequence[Dim | None]:
        """The shape of a value or an input; empty where nobody knows it."""

    def named(self, size: int, role: Role, index: int, like: Dim | None) -> Dim:
        """The size of a dimension of a result, as other shapes have it. index: among those of its role. like: the size
        of the dimension in front."""


@dataclass(frozen=True)
class KnownSizes:
    """Sizes as numbers. symbols: the values of symbols and of arguments. shapes: of values and inputs."""

    symbols: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[Dim]] = field(default_factory=dict)

    def number(self, size: Dim) -> int | None:
        try:
            return value_of(size, self.symbols)
        except KeyError:
            return None

    def shape(self, name: str) -> Sequence[Dim | None]:
        return self.shapes.get(name, ())

    def named(self, size: int, role: Role, index: int, like: Dim | None) -> Dim:
        return size


class Role(Enum):
    """What a dimension is to kernels. ONE: a dimension of size 1 of a result, which is none of the graph's."""

    ROW = "row"
    CHANNEL = "channel"
    POSITION = "position"
    ONE = "one"


@dataclass(frozen=True)
class Axis:
    """One dimension. size: of a position behind a convolution what planning assumes; None where the spec does not say
    even that, as where it cannot be read."""

    role: Role
    size: Dim | None


@dataclass(frozen=True)
class Shape:
    """The dimensions of a value, the outermost first: [*rows, *channels] or [batch, channels, *positions]."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, sizes: Sequence[Dim | None], spatial: int = 0, trailing: int = 1) -> Shape:
        """The shape of the first input. spatial: how many dimensions of positions are behind the channels. trailing:
        how many dimensions are the channels together."""
        last = len(sizes) - spatial
        roles = [Role.ROW] * (last - trailing) + [Role.CHANNEL] * trailing + [Role.POSITION] * spatial
        return cls(tuple(map(Axis, roles, sizes)))

    def sizes(self, *roles: Role) -> tuple[Dim | None, ...]:
        """The sizes of the dimensions that have one of the roles; without any, of all."""
        return tuple(axis.size for axis in self.axes if not roles or axis.role in roles)

    @property
    def roles(self) -> tuple[Role, ...]:
        return tuple(axis.role for axis in self.axes)

    @property
    def rows(self) -> Dim | None:
        """The size of the graph's rows."""
        of_rows = self.sizes(Role.ROW, Role.POSITION)
        return of_rows[0] if len(of_rows) == 1 else ROWS

    @property
    def channels(self) -> Dim | None:
        """The size of the graph's channels."""
        sizes = self.sizes(Role.CHANNEL)
        return None if None in sizes else sizes[0] if len(sizes) == 1 else product([*map(certain, sizes)])

    @property
    def spatial(self) -> int:
        """How many dimensions of positions there are; 0 where the channels are the last dimension."""
        return len(self.sizes(Role.POSITION))

    def with_channels(self, channels: Dim | None) -> Shape:
        """The shape with one dimension of so many channels in place of those that are here."""
        at = self.roles.index(Role.CHANNEL)
        others = [axis for axis in self.axes if axis.role is not Role.CHANNEL]
        return Shape((*others[:at], Axis(Role.CHANNEL, channels), *others[at:]))

    def without(self, dims: Iterable[int], sizes: Sizes | None = None) -> Shape:
        """The shape without some dimensions, or with dimensions of one element in place of these. dims: their indices.
        sizes: of the chain, where the dimensions are kept; one channel is a number, as behind the kernels' sums."""
        reduced, axes = {*dims}, []
        for index, axis in enumerate(self.axes):
            if index not in reduced:
                axes.append(axis)
            elif sizes is not None and axis.role is Role.POSITION:
                place = self.roles[:index].count(Role.POSITION)
                axes.append(Axis(axis.role, sizes.named(1, axis.role, place, axis.size)))
            elif sizes is not None:
                axes.append(Axis(axis.role, 1))
        return Shape(tuple(axes))

    def with_positions(self, sizes: Iterable[Dim | None]) -> Shape:
        """The shape with positions of these sizes."""
        others = [axis for axis in self.axes if axis.role is not Role.POSITION]
        return Shape((*others, *(Axis(Role.POSITION, size) for size in sizes)))

    def broadcast(self, shape: Sequence[Dim | None], fits: Callable[[int, Dim], bool]) -> Broadcast | None:
        """What a tensor of another shape varies over where it is broadcast to this one; None where it cannot be.

        fits: whether a dimension of this shape has a size. A size of None fits.
        """
        missing = len(self.axes) - len(shape)
        if missing < 0:
            return None
        sizes = {index + missing: dim for index, dim in enumerate(shape)}
        known = {index: dim is None or fits(index, dim) for index, dim in sizes.items()}
        if not all(known[index] or dim == 1 for index, dim in sizes.items()):
            last = len(self.axes) - 1
            fit = len(shape) == 2 and missing and self.roles[-1] is Role.CHANNEL and self.roles[-2] is not Role.CHANNEL
            if fit and known[last] and (shape[0] is None or fits(0, shape[0])):
                return Broadcast(Axes.of("N", "C"), "first", batched=True)
            return None
        if not missing and all(known.values()):  # as large as this, even where a size is 1
            return Broadcast(Axes.of("N", "C"))
        varies = [sizes.get(index, 1) != 1 for index in range(len(self.axes))]
        rows = [each for each, role in zip(varies, self.roles, strict=True) if role is not Role.CHANNEL]
        channels = [
            varies[index]
            for index, axis in enumerate(self.axes)
            if axis.role is Role.CHANNEL and (varies[index] or not (index in sizes and fits(index, 1)))
        ]
        axes = Axes.of(*(["N"] if any(rows) else []), *(["C"] if any(channels) else []))
        if not any(rows):
            return Broadcast(axes)
        if self.roles.count(Role.CHANNEL) > 1:
            return Broadcast(axes, None if all(rows) and (all(channels) or not any(channels)) else "others")
        if all(rows):
            return Broadcast(axes)
        count = sum(rows)
        return Broadcast(axes, "first" if all(rows[:count]) else "last" if all(rows[-count:]) else "others")


Rows = Literal["first", "last", "others"]


@dataclass(frozen=True)
class Broadcast:
    """What an input varies over.

    axes: of the graph. rows: over which dimensions of rows, if not over all or none: the first ones, so that one row of
    the input is for a block of rows; the last ones, so that its rows come again and again; or others. batched: it has
    the shape [batch, channels] beside more dimensions, so that a dimension of 1 is missing for each of those between.
    """

    axes: Axes
    rows: Rows | None = None
    batched: bool = False

    @property
    def is_compact(self) -> bool:
        """Whether kernels take the input as it is, and know which of their rows is which of its own."""
        return self.rows in ("first", "last") and "C" in self.axes
