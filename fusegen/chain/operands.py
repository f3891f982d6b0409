"""What steps take besides the running value: parameters, values of earlier steps, inputs and targets."""

from __future__ import annotations

from fusegen.chain.diagnostics import Diagnostics
from fusegen.chain.exchange import exchange
from fusegen.chain.inputs import Reach, reach
from fusegen.chain.model import Loss
from fusegen.chain.module import ModuleBuilder
from fusegen.chain.view import shape_text
from fusegen.ir.axes import CHANNEL, Dim
from fusegen.ir.graph import Node
from fusegen.spec.partial import AnySpec

KEEP = "'keepdim: true' keeps the dimension"


class OperandBuilder(ModuleBuilder):
    """Finds operands by the names that steps give, and refuses those of another shape.

    tail_inputs, masks, targets, spread: as Chain has them, of the steps so far.
    """

    def __init__(self, spec: AnySpec, diagnostics: Diagnostics) -> None:
        super().__init__(spec, diagnostics)
        self.tail_inputs: dict[str, Node] = {}
        self.masks: dict[str, Node] = {}
        self.targets: dict[str, Node] = {}
        self.spread: dict[str, Reach] = {}
        self.loss: Loss | None = None
        self._saved: dict[str, Node] = {}
        self._without_channels: set[str] = set()

    def parameter(self, name: str, shape: object, init: object) -> Node:
        found = super().parameter(name, shape, init)
        if self.dropped_channels and name in self.parameters and len(self.parameters[name].shape) > 1:
            shape = shape_text(self.parameters[name].shape)
            self.refuse("FG309", f"the running value is [rows], parameter '{name}' is {shape}", "parameter", KEEP)
        return found

    def value(self, name: str, field: str = "value") -> Node:
        """The result of an earlier step. field: the key that names it."""
        if name not in self._saved:
            hint = self.symbols.references.missing("value", name, self._saved)
            if name in self.spec.inputs:
                hint = f"'{name}' is an input: give it as one"
            self.refuse("FG301", f"no step before this one saves '{name}'", field, hint)
            return self.graph.tensor(name, self.graph.view)
        self.symbols.references.use("value", name)
        if (name in self._without_channels) != self.dropped_channels:
            shapes = ("[rows]", "of two dimensions") if self.dropped_channels else ("of two dimensions", "[rows]")
            message = (
                f"the running value is {shapes[0]}, '{name}' is {shapes[1]}: PyTorch would pair rows with channels"
            )
            self.refuse("FG309", message, field, KEEP)
        return self._saved[name]

    def _shape_of_input(self, name: str, field: str) -> tuple[Dim | None, ...] | None:
        """The shape of an input that a step names in this field; None if there is none of the name."""
        known = {tensor.name: tensor.shape for tensor in self.inputs}
        if name in known:
            self.symbols.references.use("input", name)
        elif not self.symbols.is_unread("inputs", name):
            hint = self.symbols.references.missing("input", name, known)
            if name in self._saved:
                hint = f"'{name}' is a value: give it as one"
            self.refuse("FG301", f"no input named '{name}'", field, hint)
        return known.get(name)

    def input(self, name: str, field: str = "input") -> Node:
        """An input of the module, whose shape broadcasts to that of the running value. field: the key that names it,
        "input" or, for one of bool, "mask"."""
        shape = self._shape_of_input(name, field)
        if shape is None:
            return self.graph.tensor(name, self.graph.view)
        ours, others = (self.masks, self.tail_inputs) if field == "mask" else (self.tail_inputs, self.masks)
        if name in others or (field == "mask" and name in self._multiplied()):
            self.refuse("FG307", f"the input '{name}' cannot be both a mask and a number", field)
            return self.graph.tensor(name, self.graph.view)
        if exchange(self, shape):
            ours[name] = self.graph.tensor(name, CHANNEL)
            return ours[name]
        if self.dropped_channels:
            message = f"the running value is [rows], the input '{name}' is not: PyTorch would pair rows with channels"
            self.refuse("FG309", message, field, KEEP)
        found = self._reach(name, shape, field)
        if found.spread:
            self.spread[name] = found
        ours[name] = self.graph.tensor(name, found.axes)
        return ours[name]

    def _multiplied(self) -> tuple[str, ...]:
        """The first input, and the other one of a product of two."""
        return (self.inputs[0].name, *((self.spec.chain[0].input,) if self.in_batches else ()))

    def _reach(self, name: str, shape: tuple[Dim | None, ...], field: str) -> Reach:
        """What an input varies over; all there is, if it does not fit."""
        everything = Reach(self.graph.view)
        if self.spec.inputs[name] is None or (self.positions is None and None in (*self.of_rows, self.channels)):
            return everything
        if self.positions is not None:
            fits, form = self.positions.fits(self.channels), self.positions.form(self.channels)
            found = reach(shape, len(form), 1, fits)
        else:
            form, found = self.form, self.reach_of(shape)
        if found is None:
            to = shape_text(form)
            message = f"the input '{name}' has the shape {shape_text(shape)}, which does not broadcast to {to}"
            self.refuse("FG303", message, field)
        return found or everything

    def target(self, name: str, reduction: str, ignored: int) -> Node:
        """An input of the module that has the number of a channel for each row, and what is made of their losses."""
        shape = self._shape_of_input(name, "target")
        node = self.graph.tensor(name, self.graph.view - CHANNEL)
        if shape is None:
            return node
        wanted = None
        if name == self.inputs[0].name or name in (*self.tail_inputs, *self.masks):
            self.refuse("FG303", f"the input '{name}' is no target: it has values of each channel", "target")
        elif self.spec.inputs[name] is not None:
            wanted = self._misfit_of_rows(shape)
        if wanted is not None:
            message = f"the target '{name}' has the shape {shape_text(shape)}, but {wanted} is needed here"
            self.refuse("FG303", message, "target")
        self.loss = Loss(reduction, name, ignored)
        self.targets[name] = node
        return node

    def _misfit_of_rows(self, shape: tuple[Dim | None, ...]) -> str | None:
        """The shape that an input without channels needs, if this one is another."""
        form: tuple[Dim | None, ...] = (*self.of_rows, self.channels)
        channel, fits = len(form) - 1, lambda index, dim: form[index] == dim
        if self.positions is not None:
            form, channel, fits = self.positions.form(self.channels), 1, self.positions.fits(self.channels)
        places = [index for index in range(len(form)) if index != channel]
        fit = len(shape) == len(places) and all(
            None in (form[index], dim) or fits(index, dim) for index, dim in zip(places, shape, strict=True)
        )
        return None if fit else shape_text([form[index] for index in places])
