"""What steps take besides the running value: values of earlier steps, and further inputs of the module."""

from __future__ import annotations

from fusegen.chain.diagnostics import Diagnostics
from fusegen.chain.inputs import Reach, reach
from fusegen.chain.module import ModuleBuilder, shape_text
from fusegen.ir.axes import Dim
from fusegen.ir.graph import Node


class OperandBuilder(ModuleBuilder):
    """Finds operands by the names that steps give.

    tail_inputs, masks, spread: as Chain has them, of the steps so far.
    """

    def __init__(self, spec, diagnostics: Diagnostics) -> None:
        super().__init__(spec, diagnostics)
        self.tail_inputs: dict[str, Node] = {}
        self.masks: dict[str, Node] = {}
        self.spread: dict[str, Reach] = {}
        self._saved: dict[str, Node] = {}

    def value(self, name: str, field: str = "value") -> Node:
        """The result of an earlier step. field: the key that names it."""
        if name not in self._saved:
            hint = self.symbols.references.missing("value", name, self._saved)
            if name in self.spec.inputs:
                hint = f"'{name}' is an input: give it as one"
            self.refuse("FG301", f"no step before this one saves '{name}'", field, hint)
            return self.graph.tensor(name, self.graph.view)
        self.symbols.references.use("value", name)
        return self._saved[name]

    def input(self, name: str, field: str = "input") -> Node:
        """An input of the module, whose shape broadcasts to that of the running value. field: the key that names it,
        "input" or, for one of bool, "mask"."""
        known = {tensor.name: tensor.shape for tensor in self.inputs}
        if name not in known:
            if not self.symbols.is_unread("inputs", name):
                hint = self.symbols.references.missing("input", name, known)
                if name in self._saved:
                    hint = f"'{name}' is a value: give it as one"
                self.refuse("FG301", f"no input named '{name}'", field, hint)
            return self.graph.tensor(name, self.graph.view)
        self.symbols.references.use("input", name)
        ours, others = (self.masks, self.tail_inputs) if field == "mask" else (self.tail_inputs, self.masks)
        if name in others or (field == "mask" and name in self._multiplied()):
            self.refuse("FG307", f"the input '{name}' cannot be both a mask and a number", field)
            return self.graph.tensor(name, self.graph.view)
        found = self._reach(name, known[name], field)
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
            form = (*self.of_rows, self.channels)
            found = reach(shape, len(form), len(form) - 1, lambda index, dim: form[index] == dim)
        if found is None:
            to = shape_text(form)
            message = f"the input '{name}' has the shape {shape_text(shape)}, which does not broadcast to {to}"
            self.refuse("FG303", message, field)
        return found or everything
