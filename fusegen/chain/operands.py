"""What steps take besides the running value: parameters, values of earlier steps, inputs and targets."""

from __future__ import annotations

from fusegen.chain.diagnostics import Diagnostics
from fusegen.chain.model import Loss
from fusegen.chain.module import ModuleBuilder, shape_text
from fusegen.ir.axes import CHANNEL, Dim
from fusegen.ir.graph import Node

KEEP = "'keepdim: true' keeps the dimension"


class OperandBuilder(ModuleBuilder):
    """Finds them for a step, and refuses those of another shape.

    dropped_channels: whether a reduction before the present step has dropped the dimension of the channels.
    """

    def __init__(self, spec, diagnostics: Diagnostics) -> None:
        super().__init__(spec, diagnostics)
        self.tail_inputs: dict[str, Node] = {}
        self.targets: dict[str, Node] = {}
        self.loss: Loss | None = None
        self.dropped_channels = False
        self._saved: dict[str, Node] = {}
        self._without_channels: set[str] = set()

    def parameter(self, name: str, shape: object, init: object) -> Node:
        found = super().parameter(name, shape, init)
        if self.dropped_channels and name in self.parameters and len(self.parameters[name].shape) > 1:
            shape = shape_text(self.parameters[name].shape)
            self.refuse("FG309", f"the running value is [rows], parameter '{name}' is {shape}", "parameter", KEEP)
        return found

    def value(self, name: str) -> Node:
        """The result of an earlier step."""
        if name not in self._saved:
            hint = self.symbols.references.missing("value", name, self._saved)
            if name in self.spec.inputs:
                hint = f"'{name}' is an input: give it as one"
            self.refuse("FG301", f"no step before this one saves '{name}'", "value", hint)
            return self.graph.tensor(name, self.graph.view)
        self.symbols.references.use("value", name)
        if (name in self._without_channels) != self.dropped_channels:
            shapes = ("[rows]", "of two dimensions") if self.dropped_channels else ("of two dimensions", "[rows]")
            message = (
                f"the running value is {shapes[0]}, '{name}' is {shapes[1]}: PyTorch would pair rows with channels"
            )
            self.refuse("FG309", message, "value", KEEP)
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

    def target(self, name: str, reduction: str, ignored: int) -> Node:
        """An input of the module that has the number of a channel for each row, and what is made of their losses."""
        shape = self._shape_of_input(name, "target")
        node = self.graph.tensor(name, self.graph.view - CHANNEL)
        if shape is None:
            return node
        wanted = None
        if name == self.inputs[0].name or name in self.tail_inputs:
            self.refuse("FG303", f"the input '{name}' is no target: it has values of each channel", "target")
        elif self.spec.inputs[name] is not None and self.positions is not None:
            wanted = self.positions.misfit_of_rows(shape)
        elif self.spec.inputs[name] is not None and None not in (self.rows, *shape) and shape != (self.rows,):
            wanted = shape_text((self.rows,))
        if wanted is not None:
            message = f"the target '{name}' has the shape {shape_text(shape)}, but {wanted} is needed here"
            self.refuse("FG303", message, "target")
        self.loss = Loss(reduction, name, ignored)
        self.targets[name] = node
        return node

    def input(self, name: str) -> Node:
        """An input of the module, in the shape of the running value."""
        shape = self._shape_of_input(name, "input")
        if shape is None:
            return self.graph.tensor(name, self.graph.view)
        if self.dropped_channels:
            message = f"the running value is [rows], the input '{name}' is not: PyTorch would pair rows with channels"
            self.refuse("FG309", message, "input", KEEP)
        wanted = None if self.spec.inputs[name] is None else self._other_shape(shape)
        if wanted is not None:
            message = f"the input '{name}' has the shape {shape_text(shape)}, but {wanted} is needed here"
            self.refuse("FG303", message, "input")
        self.tail_inputs[name] = self.graph.tensor(name, self.graph.view)
        return self.tail_inputs[name]

    def _other_shape(self, shape: tuple[Dim | None, ...]) -> str | None:
        """The shape of the running value, if it is known to be another one than this."""
        if self.positions is not None:
            return self.positions.misfit(shape, self.channels)
        sizes = (self.rows, self.channels)
        return None if None in (*sizes, *shape) or shape == sizes else shape_text(sizes)
