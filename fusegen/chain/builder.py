"""What the steps of a chain build: its graph, and what the module around it owns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeVar

from fusegen.chain.diagnostics import Field, Mistakes
from fusegen.chain.model import Buffer, Chain, Constant, Contraction, Input, Parameter
from fusegen.chain.symbols import Symbols
from fusegen.ir.extent import ALL, CHANNEL, FULL, SCALAR, Dim, Extent
from fusegen.ir.graph import Graph, Node
from fusegen.spec.document import DocumentPath
from fusegen.spec.wording import nearest

Held = TypeVar("Held", Parameter, Buffer, Constant)

INITS = ("randn", "rand", "ones", "zeros")


class ChainBuilder:
    """What a step may ask for while it adds itself to the graph.

    A method that finds a mistake notes it and returns a stand-in, so that the step's other mistakes are found too.
    step: the index of the step that asks. rows, channels: the sizes of the running value; None where nobody can tell.
    """

    def __init__(self, spec, mistakes: Mistakes, training: bool) -> None:
        self.spec = spec
        self.mistakes = mistakes
        self.refuse = mistakes.refuse
        self.training = training
        self.step = 0
        self.graph = Graph(_names(spec))
        self.symbols = Symbols(spec, mistakes)
        self.inputs = [Input(name, self.symbols.of_input(name)) for name in spec.inputs]
        self.rows, self.channels = self.inputs[0].shape if self.inputs else (None, None)
        self.tail_inputs: dict[str, Node] = {}
        self.contraction: Contraction | None = None
        self.parameters: dict[str, Parameter] = {}
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[str, Constant] = {}
        self.updates: dict[str, Node] = {}
        self.batch_norms: list[tuple[str, bool]] = []
        self.group_counts: dict[Dim, DocumentPath] = {}
        self._places: dict[str, DocumentPath] = {name: ("inputs", name) for name in spec.inputs}
        self._stand_ins: set[str] = set()
        self._saved: dict[str, Node] = {}
        self._saved_by: dict[str, int] = {}
        # Before any value has a name, so that they are called alike in training and in evaluation.
        owned = [(step.name, key) for step in spec.chain if step is not None for key in (*step.tensors, *step.owns)]
        self._derived = {each: self.graph.claim("_".join(each)) for each in dict.fromkeys(owned)}
        self._owners: dict[str, object] = {}
        self._source: Node | None = None

    # From the first step to the last

    def start(self) -> Node | None:
        """The running value before the first step; None where that is a linear layer, whose product is a leaf."""
        first = self.spec.chain[0] if self.spec.chain else None
        if first is not None and first.op == "linear":
            return None
        return self._begin(self.inputs[0].name if self.inputs else "x")

    def _begin(self, name: str) -> Node:
        self._source = self.graph.tensor(name, FULL)
        return self._source

    def contract(self, step, x: Node | None) -> Node:
        """The product of a linear layer with the running value x."""
        self._own(step.name)
        out = self.symbols.size(step.out_features, "out_features")
        if x is not None:
            self.refuse("FG308", "linear can only be the first step of a chain")
            self.channels = None
            return x
        self.symbols.constructed((self.channels,), None)
        self.symbols.constructed((out,), "out_features")
        source = self.inputs[0].name if self.inputs else "x"
        names = [self._name_of(step.name, key) for key in ("input", "weight", "product")]
        self.contraction = Contraction(step.name, source, self.channels, out, *names)
        self._places.setdefault(step.name, self.mistakes.place("name"))
        self.channels = out
        return self._begin(self.contraction.product)

    def remember(self, name: str | None, value: Node | None) -> None:
        """Keeps the result of a step under the name that it is saved by."""
        if name is None:
            return
        if name in self._saved:
            self.refuse("FG208", f"a value named '{name}' exists already", "save")
        elif name in self.spec.inputs:
            self.refuse("FG208", f"'{name}' is an input: a value needs another name", "save")
        self._saved.setdefault(name, value or self.graph.tensor(name, FULL))
        self._saved_by.setdefault(name, self.step)

    def pass_over(self, written: Any, running: Node | None) -> None:
        """Takes a step that nobody can read for one that makes whatever it says."""
        op = written.get("op") if isinstance(written, dict) else None
        like_linear = not isinstance(op, str) or nearest(op, ["linear"]) or "out_features" in written
        if self.step == 0 and like_linear:
            self.channels = None
        if isinstance(written, dict):
            self.assume([written.get("save"), written.get("parameter")], running)

    def assume(self, names: Iterable[object], running: Node | None) -> None:
        """Takes the names for those of values and parameters: nobody can read what they are."""
        for name in names:
            if isinstance(name, str):
                self._saved.setdefault(name, running or self.graph.tensor("x", FULL))
                self._stand_in(name)

    def finish(self, result: Node | None) -> Chain:
        if self.training:  # evaluation has no use for everything
            self.symbols.report_unused(self._saved_by)
        source = self._source or self._begin("x")
        return Chain(
            graph=self.graph,
            rows=self.rows,
            channels=self.channels,
            inputs=self.inputs,
            source=source,
            result=result or source,
            contraction=self.contraction,
            training=self.training,
            parameters=self.parameters,
            buffers=self.buffers,
            constants=self.constants,
            tail_inputs=self.tail_inputs,
            updates=self.updates,
            batch_norms=self.batch_norms,
            group_counts=self.group_counts,
            places=self._places,
        )

    # Sizes and shapes

    def groups(self, value: Dim) -> Dim:
        """The number of groups of a norm: a number, or an argument."""
        if isinstance(value, str) and self.symbols.argument(value, "num_groups", ("int",)) is None:
            return value
        count, channels = self.symbols.typical(value), self.symbols.typical(self.channels)
        if count is not None and channels is not None and (count < 1 or channels % count):
            self.refuse("FG304", f"{count} groups do not divide {channels} channels", "num_groups")
        self.group_counts.setdefault(value, self.mistakes.place("num_groups"))
        return value

    def extent_of(self, shape: tuple[Dim | None, ...], field: Field) -> Extent | None:
        """Where a tensor of this shape varies when it is broadcast to [rows, channels]; None if it does not fit."""
        rows, channels = ((1,) * (2 - len(shape)) + shape)[-2:]
        pairs = ((rows, self.rows), (channels, self.channels))
        if len(shape) > 2 or any(dim not in (1, full, None) and full is not None for dim, full in pairs):
            to = _text((self.rows, self.channels))
            self.refuse("FG303", f"the shape {_text(shape)} does not broadcast to {to}", field)
            return None
        return Extent(rows != 1, 1 if channels == 1 else ALL)

    # Tensors

    def parameter(self, name: str, shape: object, init: object) -> Node:
        """A parameter of the module itself. A second use of it has neither a shape nor an init."""
        if shape is None:
            return self._again(name, init)
        hint = "a parameter that is used again is only named" if name in self.parameters else None
        self._own(name, "parameter", hint=hint)
        if init is None:
            self.refuse("FG202", f"parameter '{name}' needs an init", "parameter")
        elif isinstance(init, str) and init not in INITS:
            self.symbols.argument(init, "init", ("float", "int"), INITS)
        dims = self._shape(shape)
        extent = None if dims is None else self.extent_of(dims, "shape")
        if dims is None or extent is None:
            return self._stand_in(name)
        self.symbols.constructed(dims, "shape")
        self._declare(self.parameters, Parameter(name, name, dims, extent), "parameter")
        return self.graph.tensor(name, extent)

    def _again(self, name: str, init: object) -> Node:
        """A parameter that an earlier step has made."""
        if name in self.parameters:
            if init is not None:
                self.refuse("FG205", f"parameter '{name}' has its init where its shape is given", "init")
            return self.graph.tensor(name, self.parameters[name].extent)
        if name not in self._stand_ins and not self.mistakes.missing_keys:
            hint = self.symbols.references.missing("parameter", name, [*self.parameters, *sorted(self._stand_ins)])
            self.refuse("FG301", f"parameter '{name}' is used here before a step gives its shape", "parameter", hint)
        return self._stand_in(name)

    def _stand_in(self, name: str) -> Node:
        """A parameter of unknown shape, which later steps may use."""
        self._stand_ins.add(name)
        return self.graph.tensor(name, CHANNEL)

    def _shape(self, shape: Any) -> tuple[Dim | None, ...] | None:
        if isinstance(shape, str):
            argument = self.symbols.argument(shape, "shape", ("shape",))
            # The spec's own checks report a symbol in `is` that is not declared.
            return argument and tuple(dim if self._is_size(dim) else None for dim in argument.is_)
        return tuple(self.symbols.size(dim, ("shape", index)) for index, dim in enumerate(shape))

    def _is_size(self, dim: Dim) -> bool:
        return isinstance(dim, int) or dim in self.spec.dims

    def owned_parameter(
        self, module: str, key: str, shape: tuple[Dim, ...], extent: Extent, in_product: bool = False
    ) -> Node:
        """A parameter of the submodule `module`."""
        name = self._name_of(module, key)
        self._own(module)
        self._declare(self.parameters, Parameter(name, f"{module}.{key}", shape, extent, in_product), "name")
        return self.graph.tensor(name, extent)

    def buffer(self, module: str, key: str, extent: Extent = CHANNEL) -> Node:
        name = self._name_of(module, key)
        self._declare(self.buffers, Buffer(name, f"{module}.{key}", extent, integer=extent == SCALAR), "name")
        return self.graph.tensor(name, extent)

    def update_buffer(self, buffer: Node, value: Node) -> None:
        self.updates[buffer.name] = value

    def uses_batch_statistics(self, name: str, tracked: bool) -> None:
        self._own(name)
        self.batch_norms.append((name, tracked))

    def value(self, name: str) -> Node:
        """The result of an earlier step."""
        if name not in self._saved:
            hint = self.symbols.references.missing("value", name, self._saved)
            if name in self.spec.inputs:
                hint = f"'{name}' is an input: give it as one"
            self.refuse("FG301", f"no step before this one saves '{name}'", "value", hint)
            return self.graph.tensor(name, FULL)
        self.symbols.references.use("value", name)
        return self._saved[name]

    def input(self, name: str) -> Node:
        """An input of the module, in the shape of the running value."""
        known = {tensor.name: tensor.shape for tensor in self.inputs}
        if name not in known:
            if not self.symbols.is_unread("inputs", name):
                hint = self.symbols.references.missing("input", name, known)
                if name in self._saved:
                    hint = f"'{name}' is a value: give it as one"
                self.refuse("FG301", f"no input named '{name}'", "input", hint)
            return self.graph.tensor(name, FULL)
        self.symbols.references.use("input", name)
        sizes = (self.rows, self.channels)
        unknown = None in (*sizes, *known[name]) or self.spec.inputs[name] is None
        if not unknown and known[name] != sizes:
            message = f"the input '{name}' has the shape {_text(known[name])}, but {_text(sizes)} is needed here"
            self.refuse("FG303", message, "input")
        self.tail_inputs[name] = self.graph.tensor(name, FULL)
        return self.tail_inputs[name]

    # Constants

    def scalar(self, value: float | str, field: str) -> Node:
        """A step's constant: a literal, or an argument that the module keeps as an attribute."""
        if not isinstance(value, str):
            return self.graph.literal(value)
        self.symbols.argument(value, field, ("float", "int"))
        self._own(value, field, owner="argument")
        self._declare(self.constants, Constant(value, value), field)
        return self.graph.scalar(value)

    def constant(self, value: float | str, name: str | None) -> Node:
        """An operand that is a constant. name: the attribute that holds a number."""
        if name is None:
            return self.scalar(value, "constant")
        self._own(name)
        self._declare(self.constants, Constant(name, name), "name")
        return self.graph.scalar(name)

    def inverse(self, constant: Node, field: str) -> Node:
        """1 / constant. Refuses a number of which a double cannot hold that."""
        if constant.op != "literal":
            return self.graph.add("reciprocal", constant, name=f"inverse_{constant.name}")
        value = constant.attribute
        inverse = 1.0 / value if value else 0.0
        if value == 0:
            self.refuse("FG205", f"division by the {field} 0", field)
        elif math.isinf(inverse):
            self.refuse("FG205", f"1 / {value} is too large for a double", field)
        return self.graph.literal(inverse)

    def owned_scalar(self, value: float | str | None, module: str, key: str) -> Node:
        """A constant that a norm holds, read there at run time so that later changes to it count."""
        self._own(module)
        self.symbols.constructed((self.channels,), None)
        if isinstance(value, str):
            self.symbols.argument(value, key, ("float", "int"))
        name = self._name_of(module, key)
        self._declare(self.constants, Constant(name, f"{module}.{key}"), "name")
        return self.graph.scalar(name)

    # Names

    def _name_of(self, module: str, key: str) -> str:
        """The ops' name of what the module calls `bn.weight`: bn_weight, unless the spec so calls something else."""
        return self._derived[module, key]

    def _declare(self, table: dict[str, Held], thing: Held, field: str) -> None:
        """Notes something that the module holds. It and the inputs are arguments of one op."""
        if thing.name in self.spec.inputs and thing.name not in table:
            self.refuse("FG305", f"'{thing.name}' is an input, too", field, "rename one")
        table[thing.name] = thing
        self._places.setdefault(thing.name, self.mistakes.place(field))

    def _own(self, name: str, field: str = "name", owner: str | None = None, hint: str | None = None) -> None:
        """Notes an attribute of the module; two steps cannot own the same. owner: "argument" if that holds it for
        all steps."""
        if self._owners.setdefault(name, owner or self.step) != (owner or self.step):
            self.refuse("FG305", f"two steps would own the attribute '{name}'", field, hint)


def _text(shape: tuple[Dim | None, ...]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _names(spec) -> frozenset[str]:
    """What the spec calls its tensors and constants."""
    steps = [step for step in spec.chain if step is not None]
    operands = [step.parameter or step.name for step in steps if hasattr(step, "parameter")]
    # An argument of a norm is its attribute, not the module's.
    constants = [value for step in steps if not step.module for value in vars(step).values() if isinstance(value, str)]
    return frozenset({*spec.inputs, *operands, *spec.arguments.keys() & constants} - {None})
