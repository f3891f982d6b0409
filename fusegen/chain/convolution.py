"""Chains behind a convolution: what it takes, and the shapes of parameters and inputs there.

The values of such a chain are [batch, channels, *positions] for PyTorch, and [rows, channels] for the graph: channels
are the innermost dimension in memory, and each position of each element of the batch is a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.chain.anchors import Convolution, Sizing
from fusegen.chain.diagnostics import Diagnostics
from fusegen.chain.symbols import Symbols
from fusegen.ir.axes import Axes, Dim
from fusegen.spec.document import DocumentPath

OWN_SYMBOLS = "the batch and each position of the first input have symbols of their own: they may have any size"
_OPTIONS = ("kernel_size", "stride", "padding", "dilation", "output_padding")


class Positions:
    """Shapes of a chain behind a convolution with so many dimensions of positions.

    given: the shape of its input, [batch, channels, *positions]; None is a size that nobody could read.
    """

    def __init__(self, spatial: int, given: Sequence[Dim | None], symbols: Symbols, diagnostics: Diagnostics) -> None:
        self.spatial, self.given, self.symbols, self.diagnostics = spatial, tuple(given), symbols, diagnostics
        # Behind the convolution, as planning assumes them.
        self.sizes: tuple[int | None, ...] = (None,) * spatial

    def check_symbols(self, path: DocumentPath, channels: Sequence[Dim | None]) -> None:
        """Refuses numbers and other dimensions' symbols where a size is free. channels: of the input and the result."""
        free = [dim for index, dim in enumerate(self.given) if index != 1]
        known = [dim for dim in free if dim is not None]
        if any(isinstance(dim, int) for dim in known) or len(set(known)) < len(known) or set(known) & {*channels}:
            self.diagnostics.add("FG303", OWN_SYMBOLS, path)

    def begin(self, step: Any, source: str, channels: Sequence[Dim], names: Sequence[str]) -> Convolution:
        """The convolution of a step. channels: of its input and its result. names: of its weight and its result."""
        options = {key: self._each(step, key) for key in _OPTIONS}
        if step.groups is not None and isinstance(step.groups, str):
            self.symbols.argument(step.groups, "groups", ("int", "dim"))
        made = Convolution(
            name=step.name,
            source=source,
            dimensions=self.spatial,
            transposed=step.transposed,
            width=channels[0],
            channels=channels[1],
            groups=step.groups,
            same=step.padding_word == "same",
            attribute=f"{step.name}.weight",
            weight=names[0],
            result=names[1],
            **options,
        )
        self._check(made)
        return made

    def _each(self, step: Any, key: str) -> tuple[Sizing, ...]:
        """An option's entry for each dimension of positions."""
        value, nothing = _option(step, key), 0 if key in ("padding", "output_padding") else 1
        if value is None:
            return (nothing,) * self.spatial
        if key == "padding" and value in ("same", "valid") and value not in self.symbols.spec.arguments:
            message = f"{step.op} has no padding '{value}': PyTorch's takes numbers alone"
            self.diagnostics.refuse("FG205", message, key)
            return (nothing,) * self.spatial
        if not isinstance(value, tuple):
            value = (value,) * self.spatial
        if len(value) != self.spatial:
            message = f"{key} has {len(value)} entries, but there are {self.spatial} dimensions of positions"
            self.diagnostics.refuse("FG303", message, key)
            return (nothing,) * self.spatial
        for entry in dict.fromkeys(value):
            if isinstance(entry, str):
                self.symbols.argument(entry, key, ("int",))
        return value

    def _check(self, made: Convolution) -> None:
        """What nn.ConvNd would refuse at the sizes that planning assumes."""
        named = {*made.kernel_size, *made.stride, *made.padding, *made.dilation, *made.output_padding, made.groups}
        typical = {each: self.symbols.typical(each) for each in named}
        numbers = {each: value for each, value in typical.items() if value is not None}
        if len(numbers) < len(typical):
            return
        number = numbers.__getitem__
        if min([number(made.groups), *map(number, (*made.kernel_size, *made.stride, *made.dilation))]) < 1:
            return  # what planning assumes of an argument is refused where it is written
        groups, counts = number(made.groups), [self.symbols.typical(c) for c in (made.width, made.channels)]
        for count in counts:
            if count is not None and count % groups:
                self.diagnostics.refuse("FG304", f"{groups} groups do not divide {count} channels", "groups")
                return
        if made.same and any(number(stride) != 1 for stride in made.stride):
            self.diagnostics.refuse("FG205", "padding 'same' goes with a stride of 1 alone", "padding")
            return
        for output_padding, *others in zip(made.output_padding, made.stride, made.dilation, strict=True):
            if number(output_padding) >= max(map(number, others)) and number(output_padding):
                message = "output_padding has to be less than the stride or the dilation"
                self.diagnostics.refuse("FG205", message, "output_padding")
                return
        found = [self.symbols.typical(dim) for dim in self.given[2:]]
        given = [size for size in found if size is not None]
        if len(given) < len(found):
            return
        sizes = made.positions(given, number)
        if min(sizes) < 1:
            message = f"the result would have no positions: {list(sizes)} of {given}"
            self.diagnostics.refuse("FG303", message, "kernel_size")
            return
        self.sizes = sizes

    def axes_of(self, shape: Sequence[Dim | None], channels: Dim | None) -> Axes | str:
        """Where a parameter of this shape varies when it is broadcast to [batch, channels, *positions]; or why it
        may not."""
        form = shape_form(self.spatial)
        if len(shape) > len(form):
            return f"has more dimensions than the running value, {list_text(form)}"
        full = (1,) * (len(form) - len(shape)) + tuple(shape)
        if any(dim not in (1, None) for dim in full[2:]):
            wanted = list_text([channels or "channels", *(1,) * self.spatial])
            return f"varies over positions: a value for each channel has the shape {wanted}"
        if full[0] not in (1, None):
            return "varies over the batch: a parameter may vary over the channels alone"
        if channels is not None and full[1] not in (1, channels, None):
            return f"does not broadcast to {list_text(['batch', channels, *form[2:]])}"
        return Axes.of(*(["C"] if full[1] != 1 else []))


def _option(step: Any, key: str) -> Any:
    """An option of a convolution; None where it lacks that, or has a word."""
    return None if key == "padding" and step.padding_word is not None else getattr(step, key, None)


def shape_form(spatial: int) -> tuple[str, ...]:
    """What the dimensions of a convolution's input are called."""
    return ("batch", "channels", *("depth", "height", "width")[-spatial:])


def list_text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"
