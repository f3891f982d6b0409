"""What the rows and the channels of a chain's graph are of the module's inputs, and which shapes broadcast to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.chain.convolution import Positions, shape_form
from fusegen.chain.diagnostics import Diagnostics, Field
from fusegen.chain.images import spatial_of
from fusegen.chain.model import Input
from fusegen.chain.shape import Role, Shape, certain
from fusegen.chain.symbols import Symbols
from fusegen.chain.trailing import trailing_dimensions
from fusegen.chain.transpose import transpose
from fusegen.ir.axes import CHANNEL, MATRIX, Axes, Dim
from fusegen.ir.graph import Graph, Node
from fusegen.spec.partial import AnySpec


class ViewBuilder:
    """Begins a chain's graph over [rows, channels].

    A method that finds an error adds a diagnostic and returns a stand-in, so that the step's other errors are found
    too. step: the index of the present step. shape: of the running value, without what reductions drop; None is a size
    that nobody can tell. running: the value before each step so far. dropped_channels: whether a reduction of it has
    dropped the dimension of the channels. keeps_positions: whether one over all positions has left dimensions of 1.
    transposed: the dimensions of the running value, once its rows are behind its channels.
    """

    def __init__(self, spec: AnySpec, diagnostics: Diagnostics) -> None:
        self.spec = spec
        self.diagnostics = diagnostics
        self.refuse = diagnostics.refuse
        self.step = 0
        self.running: list[Node | None] = []
        self.dropped_channels = self.keeps_positions = False
        self.transposed: tuple[Role, ...] = ()
        self.graph = Graph(_names(spec), MATRIX)
        self.symbols = Symbols(spec, diagnostics)
        spatial = spatial_of(spec)
        self.in_batches = bool(spec.chain) and spec.chain[0] is not None and spec.chain[0].in_batches
        form = shape_form(spatial) if spatial else ("rows", "channels")
        form = ("batch", "rows", "channels") if self.in_batches else form
        of_unknown = bool(spec.chain) and spec.chain[0] is None
        shapes = {name: self.symbols.of_input(name, None if of_unknown else form) for name in spec.inputs}
        self.inputs = [Input(name, tuple(map(certain, shape))) for name, shape in shapes.items()]
        first: tuple[Dim | None, ...] = self.inputs[0].shape if self.inputs else (None,) * len(form)
        is_rows = not (spatial or self.in_batches)
        count = self._trailing(len(first)) if is_rows else 1
        self.shape = Shape.of(first, spatial, count)
        self.has_leading = is_rows and len(first) > count + 1
        self.check_leading(first[-count:])
        self.positions = Positions(spatial, first, self.symbols, diagnostics) if spatial else None

    @property
    def channels(self) -> Dim | None:
        """The channels of the running value; None where nobody can tell."""
        return self.shape.channels

    @channels.setter
    def channels(self, channels: Dim | None) -> None:
        self.shape = self.shape.with_channels(channels)

    @property
    def trailing(self) -> tuple[Dim | None, ...]:
        """The dimensions that are the channels together; empty where one is."""
        several = self.shape.sizes(Role.CHANNEL)
        return several if len(several) > 1 else ()

    def _trailing(self, dimensions: int) -> int:
        """How many dimensions of the first input are the channels."""
        count = trailing_dimensions(self.spec)
        if count < dimensions:
            return count
        if count > 1:
            message = f"a norm over {count} dimensions needs an input with rows besides: [rows, *normalized_shape]"
            self.diagnostics.add("FG303", message, ("inputs", self.inputs[0].name if self.inputs else ""))
        return 1

    def check_leading(self, channels: tuple[Dim | None, ...]) -> None:
        """Refuses numbers, and symbols of other dimensions, as sizes of rows. channels: of the input or the result."""
        known = [dim for dim in self.shape.sizes(Role.ROW) if dim is not None] if self.has_leading else []
        if any(isinstance(dim, int) for dim in known) or len(set(known)) < len(known) or set(known) & {*channels}:
            path = ("inputs", self.inputs[0].name)
            self.diagnostics.add("FG303", "of more than two dimensions each has a symbol of its own", path)

    def fits(self, index: int, dim: Dim) -> bool:
        """Whether a dimension of the running value has a size. Positions behind a convolution have those that planning
        assumes."""
        axis = self.shape.axes[index]
        if axis.role is Role.POSITION and isinstance(axis.size, int):
            return axis.size == self.symbols.typical(dim)
        return axis.size in (dim, None)

    def sizes_of(self, shape: Any, field: str = "shape") -> tuple[Dim | None, ...] | None:
        """The sizes of a step's `shape`: a list, or the name of a shape argument. field: its key."""
        if isinstance(shape, str):
            argument = self.symbols.argument(shape, field, ("shape",))
            # The spec's own checks report a symbol in `is` that is not declared.
            return argument and tuple(dim if self._is_size(dim) else None for dim in argument.is_)
        return tuple(self.symbols.size(dim, (field, index)) for index, dim in enumerate(shape))

    def _is_size(self, dim: Dim) -> bool:
        return isinstance(dim, int) or dim in self.spec.dims

    def axes_of(self, shape: tuple[Dim | None, ...], field: Field) -> Axes | None:
        """Where a parameter of this shape varies when it is broadcast to the running value; None if it does not fit."""
        if self.positions is not None:
            if getattr(self.spec.chain[self.step], "is_by_channel", False):
                shape = (*shape, *(1,) * self.shape.spatial)
            found = self.positions.axes_of(shape, self.channels)
            if isinstance(found, str):
                self.refuse("FG303", f"the shape {shape_text(shape)} {found}", field)
            return None if isinstance(found, str) else found
        if transpose(self, shape):
            return CHANNEL
        is_matrix = self.shape.roles == (Role.ROW, Role.CHANNEL)
        broadcast = self.shape.broadcast(shape, self.fits)
        if broadcast is None or broadcast.batched:
            to = shape_text(self.shape.sizes())
            self.refuse("FG303", f"the shape {shape_text(shape)} does not broadcast to {to}", field)
            return None
        if "N" in broadcast.axes and not is_matrix:
            hint = "make it an input"
            self.refuse("FG303", "a parameter may vary over the channels alone", field, hint)
            return None
        return broadcast.axes


def shape_text(shape: Sequence[Dim | None]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _names(spec: AnySpec) -> frozenset[str]:
    """What the spec calls its tensors and constants."""
    steps = [step for step in spec.chain if step is not None]
    operands = [step.parameter or step.name for step in steps if hasattr(step, "parameter")]
    owned = [getattr(step, key, None) for step in steps for key in ("bias", "buffer")]
    operands += [name for name in owned if isinstance(name, str)]
    # An argument of a norm is its attribute, not the module's.
    constants = [value for step in steps if not step.module for value in vars(step).values() if isinstance(value, str)]
    return frozenset({*spec.inputs, *operands, *spec.arguments.keys() & constants} - {None})
