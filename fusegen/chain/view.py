"""What the rows and the channels of a chain's graph are of the module's inputs, and which shapes broadcast to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.chain.convolution import Positions, shape_form
from fusegen.chain.diagnostics import Diagnostics, Field
from fusegen.chain.exchange import exchange
from fusegen.chain.images import spatial_of
from fusegen.chain.inputs import Reach, reach
from fusegen.chain.model import ROWS, Input, certain
from fusegen.chain.symbols import Symbols
from fusegen.chain.trailing import reach_of_trailing, trailing_dimensions
from fusegen.ir.axes import CHANNEL, MATRIX, Axes, Dim
from fusegen.ir.graph import Graph, Node
from fusegen.ir.multiples import product
from fusegen.spec.partial import AnySpec


class ViewBuilder:
    """Begins a chain's graph over [rows, channels].

    A method that finds an error adds a diagnostic and returns a stand-in, so that the step's other errors are found
    too. step: the index of the present step. rows, channels: the sizes of the running value; None where nobody can
    tell. spatial: how many dimensions of positions the values have, which are rows of the graph's. running: the value
    before each step so far. dropped_channels: whether a reduction of it has dropped the dimension of the channels.
    leading, trailing, exchanged: as Chain has them.
    """

    def __init__(self, spec: AnySpec, diagnostics: Diagnostics) -> None:
        self.spec = spec
        self.diagnostics = diagnostics
        self.refuse = diagnostics.refuse
        self.step = 0
        self.running: list[Node | None] = []
        self.dropped_channels = False
        self.exchanged: tuple[Dim, ...] = ()
        self.graph = Graph(_names(spec), MATRIX)
        self.symbols = Symbols(spec, diagnostics)
        self.spatial = spatial_of(spec)
        self.in_batches = bool(spec.chain) and spec.chain[0] is not None and spec.chain[0].in_batches
        form = shape_form(self.spatial) if self.spatial else ("rows", "channels")
        form = ("batch", "rows", "channels") if self.in_batches else form
        of_unknown = bool(spec.chain) and spec.chain[0] is None
        shapes = {name: self.symbols.of_input(name, None if of_unknown else form) for name in spec.inputs}
        self.inputs = [Input(name, tuple(map(certain, shape))) for name, shape in shapes.items()]
        first: tuple[Dim | None, ...] = self.inputs[0].shape if self.inputs else (None,) * len(form)
        count = self._trailing(len(first))
        self.trailing: tuple[Dim | None, ...] = first[-count:] if count > 1 else ()
        self.of_rows: tuple[Dim | None, ...] = first[:-count]
        several = len(self.of_rows) > 1 and not (self.spatial or self.in_batches)
        self.leading = self.of_rows if several else ()
        self.rows, self.channels = (
            (ROWS if self.spatial or self.in_batches or self.leading else first[0]),
            first[1 if self.spatial else -1],
        )
        if self.trailing:
            self.channels = None if None in self.trailing else product(self.trailing)  # type: ignore[arg-type]
        self.check_leading(first[-count:])
        self.positions = Positions(self.spatial, first, self.symbols, diagnostics) if self.spatial else None

    def _trailing(self, dimensions: int) -> int:
        """How many dimensions of the first input are the channels."""
        count = trailing_dimensions(self.spec)
        if count < dimensions and not (self.spatial or self.in_batches):
            return count
        if count > 1 and not (self.spatial or self.in_batches):
            message = f"a norm over {count} dimensions needs an input with rows besides: [rows, *normalized_shape]"
            self.diagnostics.add("FG303", message, ("inputs", self.inputs[0].name if self.inputs else ""))
        return 1

    def check_leading(self, channels: tuple[Dim | None, ...]) -> None:
        """Refuses numbers, and symbols of other dimensions, as sizes of rows. channels: of the input or the result."""
        known = [dim for dim in self.leading if dim is not None]
        if any(isinstance(dim, int) for dim in known) or len(set(known)) < len(known) or set(known) & {*channels}:
            path = ("inputs", self.inputs[0].name)
            self.diagnostics.add("FG303", "of more than two dimensions each has a symbol of its own", path)

    @property
    def form(self) -> tuple[Dim | None, ...]:
        """The shape of the running value, whose last dimensions are the channels."""
        return (*self.of_rows, *(self.trailing or (self.channels,)))

    def reach_of(self, shape: tuple[Dim | None, ...]) -> Reach | None:
        """What a tensor of this shape varies over where it is broadcast to `form`; None where it cannot be."""
        form = self.form

        def fits(index: int, dim: Dim) -> bool:
            return form[index] in (dim, None)

        if self.trailing:
            return reach_of_trailing(shape, len(form), len(self.trailing), fits)
        return reach(shape, len(form), len(form) - 1, fits)

    def shape(self, shape: Any, field: str = "shape") -> tuple[Dim | None, ...] | None:
        """The sizes of a step's `shape`: a list, or the name of a shape argument. field: its key."""
        if isinstance(shape, str):
            argument = self.symbols.argument(shape, field, ("shape",))
            # The spec's own checks report a symbol in `is` that is not declared.
            return argument and tuple(dim if self._is_size(dim) else None for dim in argument.is_)
        return tuple(self.symbols.size(dim, (field, index)) for index, dim in enumerate(shape))

    def _is_size(self, dim: Dim) -> bool:
        return isinstance(dim, int) or dim in self.spec.dims

    def axes_of(self, shape: tuple[Dim | None, ...], field: Field) -> Axes | None:
        """Where a tensor of this shape varies when it is broadcast to [rows, channels]; None if it does not fit."""
        if self.positions is not None:
            if getattr(self.spec.chain[self.step], "is_by_channel", False):
                shape = (*shape, *(1,) * self.spatial)
            found = self.positions.axes_of(shape, self.channels)
            if isinstance(found, str):
                self.refuse("FG303", f"the shape {shape_text(shape)} {found}", field)
            return None if isinstance(found, str) else found
        if self.leading or self.in_batches or self.trailing:
            return self._axes_of_leading(shape, field)
        if exchange(self, shape):
            return CHANNEL
        rows, channels = ((1,) * (2 - len(shape)) + shape)[-2:]
        pairs = ((rows, self.rows), (channels, self.channels))
        if len(shape) > 2 or any(dim not in (1, full, None) and full is not None for dim, full in pairs):
            to = shape_text((self.rows, self.channels))
            self.refuse("FG303", f"the shape {shape_text(shape)} does not broadcast to {to}", field)
            return None
        return Axes.of(*(name for name, size in (("N", rows), ("C", channels)) if size != 1))

    def _axes_of_leading(self, shape: tuple[Dim | None, ...], field: Field) -> Axes | None:
        found = self.reach_of(shape)
        if found is None or found.batched:
            to = shape_text(self.form)
            self.refuse("FG303", f"the shape {shape_text(shape)} does not broadcast to {to}", field)
            return None
        if "N" in found.axes:
            hint = "make it an input"
            self.refuse("FG303", "a parameter may vary over the channels alone", field, hint)
            return None
        return found.axes


def shape_text(shape: Sequence[Dim | None]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _names(spec: AnySpec) -> frozenset[str]:
    """What the spec calls its tensors and constants."""
    steps = [step for step in spec.chain if step is not None]
    operands = [step.parameter or step.name for step in steps if hasattr(step, "parameter")]
    operands += [step.bias for step in steps if isinstance(getattr(step, "bias", None), str)]
    # An argument of a norm is its attribute, not the module's.
    constants = [value for step in steps if not step.module for value in vars(step).values() if isinstance(value, str)]
    return frozenset({*spec.inputs, *operands, *spec.arguments.keys() & constants} - {None})
