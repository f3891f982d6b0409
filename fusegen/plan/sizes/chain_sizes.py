"""Sizes at which a chain is checked: what its spec leaves open gets odd, tiny, prime and aligned values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusegen.chain.model import Chain
from fusegen.chain.shape import ROWS
from fusegen.ir.axes import Axes, Dim, dividend
from fusegen.ir.multiples import factors, value_of
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program
from fusegen.plan.programs.units import unit_of
from fusegen.plan.sizes.bytes import typical_symbols
from fusegen.plan.sizes.positions import further_positions, result_positions, symbols_of_convolution, symbols_of_images


@dataclass(frozen=True)
class Sizes:
    """Values of the spec's symbols: its dims, and its integer arguments."""

    symbols: Mapping[str, int]
    rows: int
    channels: int
    source: int | None  # the channels of the first input, where an anchor makes others of them
    # The shapes of the first input and of the result where they have more than two dimensions.
    given: tuple[int, ...] = ()
    made: tuple[int, ...] = ()

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the value behind the anchor, which is that of a result of full size."""
        return self.made or (self.rows, self.channels)

    def result_of(self, chain: Chain) -> tuple[int, ...]:
        """The shape of the chain's result."""
        sizes, at = self.result, 1 if chain.spatial else -1
        positions = chain.result.stored(sizes[2:], self.number) if chain.spatial else ()
        return chain.result.shape(sizes[:at], sizes[at], positions)  # type: ignore[return-value]

    def number(self, dim: Dim) -> int:
        """What a size of the spec is here."""
        return value_of(dim, self.symbols)

    def groups(self, program: Program) -> int:
        """How many groups of channels a program's norms have; 1 where it has no group norm."""
        return 1 if program.groups is None else self.number(program.groups)

    def free_groups(self, plan: Plan) -> int:
        """How many groups, where the spec leaves that open; else 1."""
        return next((self.number(count) for count in plan.chain.group_counts if isinstance(count, str)), 1)

    def shape(self, axes: Axes) -> tuple[int, int]:
        """How many values over these axes there are in memory along the rows, and along the channels."""
        if unit_of(axes).of_samples:
            return self.given[0], self.channels
        return self.number(axes.count("N", self.rows)), self.number(axes.count("C", self.channels))

    def __str__(self) -> str:
        if self.given:
            several = self.made == self.given and self.channels != self.given[-1]  # trailing dimensions
            return "x".join(map(str, self.given)) + ("" if several else f" to {self.channels}")
        return "x".join(str(extent) for extent in (self.rows, self.source, self.channels) if extent is not None)


Shape = tuple[int, int, int, int]
"""Rows, input features, channels, groups."""
# One row and two; odd and prime sizes, which no vector of 4 divides; a multiple of every vector and warp; a last block
# that is nearly empty.
SMALL = ((33, 70, 96, 6), (1, 24, 32, 4), (2, 24, 36, 4), (31, 37, 41, 1), (64, 48, 128, 8), (129, 16, 30, 3))
_BATCH = 3  # of a product of two inputs
# Tiles of it stay in the L2: blocks wait for each other.
L2 = (16411, 33, 512, 1)
# Beyond what a block holds, in each direction; sizes at which the vendor library takes other kernels; short
# rows without vectors, so many that a thread has eight elements of 16 bits; rows of large blocks and of clusters, as
# long as they are, with vectors and without, for few iterations and for more; large blocks beside column sums, and
# several of them on a multiprocessor; few rows that clusters of eight keep in shared memory, or read twice;
# L2-resident tiles.
LARGE = (
    *((512, 1024, 2048, 32), (127, 251, 509, 1), (3, 64, 20001, 3), (20000, 64, 24, 4), (5000, 33, 7, 1)),
    *((13200, 33, 252, 4), (600, 64, 8184, 1), (531, 64, 4097, 1), (150, 64, 16376, 1), (900, 33, 5121, 1)),
    *((8500, 33, 2056, 1), (2200, 33, 3001, 1), (3, 33, 40001, 1), L2),
)


def sizes(plan: Plan, rows: int, source: int, channels: int, groups: int) -> Sizes:
    """The nearest sizes that the spec allows: its numbers stay, and groups divide the channels."""
    chain = plan.chain
    if chain.spatial:
        return image_sizes(plan, rows, source, channels)
    symbols: dict[str, int] = {}

    def settle(dim: Dim, value: int) -> int:
        number, name = factors(dim)
        return number if name is None else number * symbols.setdefault(name, max(1, value // number))

    blocks = [parts[1] for parts in map(dividend, chain.group_counts) if parts is not None]
    counts = [count for count in (*chain.group_counts, *blocks) if isinstance(count, int)]
    multiple = math.lcm(*counts) if counts else 1
    if isinstance(chain.channels, str):
        multiple = math.lcm(multiple, factors(chain.channels)[0])
        channels = max(1, channels // multiple) * multiple
    if chain.trailing:
        usual = {str(dim): plan.spec.dims[dim] for dim in chain.trailing if isinstance(dim, str)}
        symbols |= usual if value_of(chain.channels, usual) == channels else {}
        channels = trailing_sizes(chain.trailing, channels, symbols)
    else:
        channels = settle(chain.channels, channels)
    if chain.leading:
        rows = leading_sizes(chain.leading, rows, symbols)
    # Rows and columns of the first input may be the same symbol as the channels, which then decide.
    rows = settle(chain.rows, rows) if not (chain.leading or chain.batched) else rows
    width = settle(chain.contraction.width, source) if chain.contraction else None
    for block in blocks:
        if isinstance(block, str):
            symbols.setdefault(block, channels // math.gcd(groups, channels))
    if b := chain.batched:
        settle(b.rows, max(1, rows // settle(b.batch, _BATCH if rows > _BATCH else 1)))
        settle(b.width, source)
    for count in chain.group_counts:
        if isinstance(count, str) and dividend(count) is None:
            symbols.setdefault(count, math.gcd(groups, channels))
    symbols = {**typical_symbols(plan.spec), **symbols}
    if chain.leading or chain.batched or chain.trailing:
        return with_leading(plan, symbols)
    return Sizes(symbols, rows, channels, width)


def typical(plan: Plan) -> Sizes:
    """The sizes that the spec's `dims` and `typical` name."""
    return sizes_at(plan, typical_symbols(plan.spec))


def sizes_at(plan: Plan, symbols: Mapping[str, int]) -> Sizes:
    """The sizes that the values of all symbols give."""
    chain = plan.chain
    if chain.spatial:
        return with_positions(plan, symbols)
    if chain.leading or chain.batched or chain.trailing:
        return with_leading(plan, symbols)
    width = value_of(chain.contraction.width, symbols) if chain.contraction else None
    return Sizes(symbols, value_of(chain.rows, symbols), value_of(chain.channels, symbols), width)


def leading_sizes(leading: Sequence[Dim], rows: int, symbols: dict[str, int]) -> int:
    """Gives the dimensions of rows unequal sizes whose product is about `rows`, and returns it."""
    found: list[int] = []
    for left in range(len(leading), 0, -1):
        size = max(1, round(max(1, rows // math.prod(found)) ** (1 / left)))
        found.append(size + (size in found and size > 1))
    symbols |= dict(zip(map(str, leading), found, strict=True))
    return math.prod(found)


def trailing_sizes(trailing: Sequence[Dim], channels: int, symbols: dict[str, int]) -> int:
    """Gives the symbols among the trailing dimensions sizes for about so many channels, and returns their product."""
    names = list(dict.fromkeys(dim for dim in trailing if isinstance(dim, str) and dim not in symbols))
    for index, name in enumerate(names):
        known = math.prod(value_of(dim, symbols) for dim in trailing if dim not in names[index:])
        left = sum(dim in names[index:] for dim in trailing)
        symbols[name] = max(1, round(max(1, channels // known) ** (1 / left)))
    return math.prod(value_of(dim, symbols) for dim in trailing)


def with_leading(plan: Plan, symbols: Mapping[str, int]) -> Sizes:
    """The sizes that the values of all symbols give where the spec's inputs have leading dimensions, or a batch."""
    chain = plan.chain
    given = tuple(value_of(dim, symbols) for dim in chain.inputs[0].shape)
    channels = value_of(chain.channels, symbols)
    count = len(chain.trailing) or 1
    rows, width = math.prod(given[:-count]), given[-1] if chain.anchor is not None else None
    made = given if chain.trailing else (*given[:-1], channels)
    return Sizes({**symbols, ROWS: rows}, rows, channels, width, given, made)


def image_sizes(plan: Plan, rows: int, source: int, channels: int) -> Sizes:
    """The nearest sizes of images: about so many rows, each of which is a position of the result. Two at least for a
    norm over positions: PyTorch refuses one over a single value."""
    if any(phase.unit.of_samples for variant in plan.variants for phase in variant.forward.phases):
        rows = max(rows, 2)
    if plan.chain.convolution is None:
        return with_positions(plan, symbols_of_images(plan, rows, channels))
    return with_positions(plan, symbols_of_convolution(plan, rows, source, channels))


def with_positions(plan: Plan, symbols: Mapping[str, int]) -> Sizes:
    """The sizes that the values of all symbols give in a chain of images."""
    chain = plan.chain
    given = tuple(value_of(dim, symbols) for dim in chain.inputs[0].shape)
    channels = value_of(chain.channels, symbols)
    positions = result_positions(plan, given[2:], symbols)
    rows = given[0] * math.prod(positions)
    width = given[1] if chain.has_weight else None
    return Sizes({**symbols, ROWS: rows}, rows, channels, width, given, (given[0], channels, *positions))


def of_input(plan: Plan, given: Sequence[int], known: Mapping[str, int] | None = None) -> Sizes:
    """The sizes for a shape of the first input, where that has more dimensions than two. All else is as in the spec, or
    as `known` says."""
    symbols = dict(typical(plan).symbols if known is None else known)
    for (number, name), size in zip(map(factors, plan.chain.inputs[0].shape), given, strict=True):
        symbols |= {} if name is None else {name: size // number}
    if not plan.chain.spatial:
        return sizes_at(plan, symbols)
    return with_positions(plan, {**symbols, **further_positions(plan, given[2:], symbols)})


def with_rows(plan: Plan, size: Sizes, rows: int) -> Sizes:
    """The size with a batch for so many rows, and its other dimensions of rows as in the spec, where the first input
    has several of these, or positions of which these are whole images; else as it is."""
    if plan.chain.spatial:
        usual = typical(plan)
        batch, rest = divmod(rows, math.prod(usual.made[2:]))
        return size if rest else of_input(plan, (batch, size.given[1], *usual.given[2:]), size.symbols)
    if not (plan.chain.leading or plan.chain.batched):
        return size
    count = len(plan.chain.trailing) or 1
    (first, *others), (_, *sizes_of_others) = plan.chain.inputs[0].shape[:-count], typical(plan).given[:-count]
    symbols = {**size.symbols, **dict(zip(map(str, others), sizes_of_others, strict=True))}
    return sizes_at(plan, {**symbols, str(first): max(1, rows // math.prod(sizes_of_others))})
