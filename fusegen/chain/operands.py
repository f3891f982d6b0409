"""What steps take besides the running value: parameters, values of earlier steps, inputs and targets."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from fusegen.chain.diagnostics import Diagnostics, Field
from fusegen.chain.module import ModuleBuilder
from fusegen.chain.result import Loss
from fusegen.chain.shape import Broadcast, Role, certain
from fusegen.chain.state import Parameter
from fusegen.chain.transpose import transpose
from fusegen.chain.view import shape_text
from fusegen.ir.axes import CHANNEL, Axes, Dim
from fusegen.ir.graph import Node
from fusegen.spec.partial import AnySpec

KEEP = "'keepdim: true' keeps the dimension"


class OperandBuilder(ModuleBuilder):
    """Finds operands by the names that steps give, and refuses those of another shape."""

    def __init__(self, spec: AnySpec, diagnostics: Diagnostics) -> None:
        super().__init__(spec, diagnostics)
        self.loss: Loss | None = None
        self._saved: dict[str, Node] = {}
        self._without_channels: set[str] = set()

    def parameter(self, name: str, shape: object, init: object, learnt: bool = True) -> Node:
        found = super().parameter(name, shape, init, learnt)
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

    def shape_of_input(self, name: str, field: Field) -> tuple[Dim | None, ...] | None:
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
        shape = self.shape_of_input(name, field)
        if shape is None:
            return self.graph.tensor(name, self.graph.view)
        kind: Literal["numbers", "mask"] = "mask" if field == "mask" else "numbers"
        if self._is_taken(name, other_than=kind) or (field == "mask" and name in self._multiplied()):
            self.refuse("FG307", f"the input '{name}' cannot be both a mask and a number", field)
            return self.graph.tensor(name, self.graph.view)
        if transpose(self, shape):
            return self._take(name, kind, CHANNEL)
        if self.dropped_channels:
            message = f"the running value is [rows], the input '{name}' is not: PyTorch would pair rows with channels"
            self.refuse("FG309", message, field, KEEP)
        broadcast = self._broadcast(name, shape, field)
        return self._take(name, kind, broadcast.axes, broadcast if broadcast.rows else None)

    def _take(
        self,
        name: str,
        kind: Literal["numbers", "mask", "target"],
        axes: Axes,
        broadcast: Broadcast | None = None,
    ) -> Node:
        """The leaf that steps take of an input, which is noted."""
        node = self.graph.tensor(name, axes)
        for place, given in enumerate(self.inputs):
            if given.name == name:
                self.inputs[place] = replace(given, kind=kind, node=node, broadcast=broadcast or given.broadcast)
        return node

    def _is_taken(self, name: str, other_than: str = "target") -> bool:
        """Whether steps take an input, and as something else."""
        return any(each.name == name and each.node and each.kind not in (other_than, "target") for each in self.inputs)

    def _multiplied(self) -> tuple[str, ...]:
        """The first input, and the other one of a product of two."""
        return (self.inputs[0].name, *((self.spec.chain[0].input,) if self.in_batches else ()))

    def _broadcast(self, name: str, shape: tuple[Dim | None, ...], field: str) -> Broadcast:
        """What an input varies over; all there is, if it does not fit."""
        everything, sizes = Broadcast(self.graph.view), self.shape.sizes()
        if self.spec.inputs[name] is None or (self.positions is None and None in sizes):
            return everything
        found = self.shape.broadcast(shape, self.fits)
        if found is None:
            to = shape_text(sizes)
            message = f"the input '{name}' has the shape {shape_text(shape)}, which does not broadcast to {to}"
            self.refuse("FG303", message, field)
        return found or everything

    def class_weights(self, name: str) -> Node:
        """An input of the module that has a value of each channel, to which no gradient flows."""
        shape = self.shape_of_input(name, "weight")
        node = self.graph.tensor(name, CHANNEL)
        if shape is None:
            return node
        if name == self.inputs[0].name or self._is_taken(name, other_than="numbers"):
            self.refuse("FG303", f"the input '{name}' has no weights of channels: it is something else", "weight")
            return node
        if self.spec.inputs[name] is not None and not (len(shape) == 1 and shape[0] in (self.channels, None)):
            wanted = shape_text((self.channels,))
            message = f"the weights '{name}' have the shape {shape_text(shape)}, but {wanted} is needed here"
            self.refuse("FG303", message, "weight")
            return node
        node = self._take(name, "numbers", CHANNEL)
        return self.graph.add("detach", node, name=f"{name}_detached")

    def buffer_of_weights(self, name: str, init: object) -> Node:
        """A buffer of the module that has a value of each channel."""
        self.own(name, "buffer")
        self.check_init(init)
        self.symbols.constructed((self.channels,), None)
        made = Parameter(name, name, (certain(self.channels),), CHANNEL, learnt=False)
        return self.declare_parameter(made, "buffer")

    def target(self, name: str, loss: Loss) -> Node:
        """An input of the module that has the number of a channel for each row. loss: what is made of their losses."""
        shape = self.shape_of_input(name, "target")
        node = self.graph.tensor(name, self.graph.view - CHANNEL)
        if shape is None:
            return node
        wanted = None
        if name == self.inputs[0].name or self._is_taken(name):
            self.refuse("FG303", f"the input '{name}' is no target: it has values of each channel", "target")
        elif self.spec.inputs[name] is not None:
            wanted = self._misfit_of_rows(shape)
        if wanted is not None:
            message = f"the target '{name}' has the shape {shape_text(shape)}, but {wanted} is needed here"
            self.refuse("FG303", message, "target")
        self.loss = loss
        return self._take(name, "target", node.axes)

    def _misfit_of_rows(self, shape: tuple[Dim | None, ...]) -> str | None:
        """The shape that an input without channels needs, if this one is another."""
        others = [index for index, role in enumerate(self.shape.roles) if role is not Role.CHANNEL]
        sizes = self.shape.sizes(Role.ROW, Role.POSITION)
        fit = len(shape) == len(others) and all(
            None in (size, dim) or self.fits(index, certain(dim))
            for index, size, dim in zip(others, sizes, shape, strict=True)
        )
        return None if fit else shape_text(sizes)
