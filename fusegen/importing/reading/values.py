"""What a module computes, as values: one for each distinct expression, whatever the trace says twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusegen.importing.traces.source_locations import SourceLine

# What a dimension of a value runs over: a dimension of the first input, numbered from the left ("0"), the channels, or
# nothing; UNKNOWN for one of a parameter until it meets another value there.
# ROWS are all dimensions of the first input but the channels, as one.
# POSITIONS are all positions of images, as one. VIEW is the op of a value of images in another number of dimensions.
CHANNELS, UNKNOWN, ROWS, POSITIONS, VIEW = "channels", "?", "rows", "positions", "view"
Layout = tuple[str | None, ...]
# Keys that are none of the step's. HIDDEN: of a value that draws random numbers: two that are made alike are two. MADE:
# the number of channels of the result, where a layer makes others without saying how many. SIZES: those of a norm over
# positions.
HIDDEN, MADE, SIZES = UNWRITTEN = "draw", "made", "sizes"


@dataclass(frozen=True)
class Number:
    """A constant. argument: of the module's constructor to be, if the number is one."""

    value: float
    argument: str | None = None


@dataclass(frozen=True, eq=False)
class Value:
    """An op of the catalogue, or of the forms, applied to operands; or a leaf: `input`, `parameter`.

    name: of a leaf, or the submodule that the op is. keys: the op's own in a spec. layout: of its dimensions.
    Two equal expressions are one object, so that `is` compares values.
    """

    op: str
    operands: tuple[Value | Number, ...] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    layout: Layout = ()
    place: SourceLine | None = None

    @property
    def is_leaf(self) -> bool:
        return self.op in ("input", "parameter")

    @property
    def reduced(self) -> tuple[int, ...]:
        """The dimensions of which a reduction leaves one element or none; the channels are 1 or -1."""
        dims = self.keys.get("dim", -1) if "keepdim" in self.keys else ()
        return dims if isinstance(dims, tuple) else (dims,)

    @property
    def positions(self) -> int:
        """How many dimensions of positions a value has that is seen as no view; 0 of rows."""
        is_in_order = self.layout[:1] == ("0",) and self.layout[1:2] in ((CHANNELS,), (None,))
        return len(self.layout) - 2 if is_in_order else 0

    @property
    def reduces_channels(self) -> bool:
        return min(self.reduced, default=2) < 2

    @property
    def values(self) -> list[Value]:
        """The operands that are no numbers."""
        return [each for each in self.operands if isinstance(each, Value)]


class Values:
    """Makes values, each once."""

    def __init__(self) -> None:
        self._known: dict[object, Value] = {}

    def make(
        self,
        op: str,
        operands: tuple[Value | Number, ...] = (),
        keys: Mapping[str, Any] | None = None,
        name: str = "",
        layout: Layout = (),
        place: SourceLine | None = None,
    ) -> Value:
        parts = tuple(each if isinstance(each, Number) else id(each) for each in operands)
        key = (op, parts, tuple(sorted((keys or {}).items(), key=lambda item: item[0])), name, layout)
        if key not in self._known:
            self._known[key] = Value(op, operands, dict(keys or {}), name, layout, place)
        return self._known[key]

    def again(self, value: Value, operands: tuple[Value | Number, ...]) -> Value:
        """The value with the op, keys, name and layout of `value`, and these operands."""
        return self.make(value.op, operands, value.keys, value.name, value.layout, value.place)


def walk(*results: Value) -> Iterator[Value]:
    """Every value that results are made of, operands first."""
    seen: set[int] = set()
    waiting: list[tuple[Value, bool]] = [(each, False) for each in reversed(results)]
    while waiting:
        value, is_ready = waiting.pop()
        if is_ready:
            yield value
        elif id(value) not in seen:
            seen.add(id(value))
            waiting.append((value, True))
            waiting += [(each, False) for each in reversed(value.values)]


Made = Callable[[Value, tuple[Value | Number, ...]], Value]
"""What takes the place of a value, from its operands that have been replaced already."""


def replaced(results: Sequence[Value], made: Made) -> list[Value]:
    """The results with every value in them replaced, operands first."""
    done: dict[int, Value] = {}
    for value in walk(*results):
        operands = tuple(done[id(each)] if isinstance(each, Value) else each for each in value.operands)
        done[id(value)] = made(value, operands)
    return [done[id(each)] for each in results]
