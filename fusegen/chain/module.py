"""What the steps make the module own: parameters, buffers and constants, and what the ops call them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from fusegen.chain.diagnostics import Diagnostics
from fusegen.chain.model import Places
from fusegen.chain.shape import certain
from fusegen.chain.state import Buffer, Constant, Parameter
from fusegen.chain.view import ViewBuilder
from fusegen.ir.axes import CHANNEL, SCALAR, Axes, Dim
from fusegen.ir.graph import Node
from fusegen.spec.partial import AnySpec

Owned = TypeVar("Owned", Parameter, Buffer, Constant)

INITS = ("randn", "rand", "ones", "zeros")


class ModuleBuilder(ViewBuilder):
    """Declares what the module owns, as nodes of the chain's graph."""

    def __init__(self, spec: AnySpec, diagnostics: Diagnostics) -> None:
        super().__init__(spec, diagnostics)
        self.parameters: dict[str, Parameter] = {}
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[str, Constant] = {}
        self.places = Places({name: ("inputs", name) for name in spec.inputs})
        self._stand_ins: set[str] = set()
        # Before any value has a name, so that they are called alike in training and in evaluation.
        owned = [(step.name, key) for step in spec.chain if step is not None for key in (*step.tensors, *step.owns)]
        self._derived = {each: self.graph.claim("_".join(each)) for each in dict.fromkeys(owned)}
        # Other chains may call something so.
        dropouts = any(step is not None and step.draws for step in spec.chain)
        self.seed = self.graph.claim("seed") if dropouts else ""
        self._owners: dict[str, object] = {}

    # Parameters and buffers

    def parameter(self, name: str, shape: object, init: object, learnt: bool = True) -> Node:
        """A parameter of the module itself. A second use of it has neither a shape nor an init. learnt: False for a
        buffer, to which no gradient flows."""
        if shape is None:
            return self._again(name, init, learnt)
        hint = "a parameter that is used again is only named" if name in self.parameters else None
        self.own(name, "parameter", hint=hint)
        if init is None:
            self.refuse("FG202", f"parameter '{name}' needs an init", "parameter")
        self.check_init(init)
        dims = self.sizes_of(shape)
        axes = None if dims is None else self.axes_of(dims, "shape")
        if dims is None or axes is None:
            return self.stand_in(name)
        self.symbols.constructed(dims, "shape")
        of_trailing = bool(self.trailing) and axes == CHANNEL
        made = Parameter(name, name, tuple(map(certain, dims)), axes, trailing=of_trailing, learnt=learnt)
        return self.declare_parameter(made, "parameter")

    def check_init(self, init: object) -> None:
        if isinstance(init, str) and init not in INITS:
            self.symbols.argument(init, "init", ("float", "int"), INITS)

    def _again(self, name: str, init: object, learnt: bool) -> Node:
        """A parameter that an earlier step has made."""
        if name in self.parameters:
            if self.parameters[name].in_product:  # kernels have no values of it where the product adds it
                message = f"parameter '{name}' is the bias of a product, which no other step takes"
                self.refuse("FG307", message, "parameter", "give the step a parameter of its own")
            if init is not None:
                self.refuse("FG205", f"parameter '{name}' has its init where its shape is given", "init")
            if not learnt:
                self.refuse("FG205", f"parameter '{name}' is told learnt or not where its shape is given", "learnt")
            return self._leaf(self.parameters[name])
        if name not in self._stand_ins and not self.diagnostics.missing_keys:
            hint = self.symbols.references.missing("parameter", name, [*self.parameters, *sorted(self._stand_ins)])
            self.refuse("FG301", f"parameter '{name}' is used here before a step gives its shape", "parameter", hint)
        return self.stand_in(name)

    def stand_in(self, name: str) -> Node:
        """A parameter of unknown shape, which later steps may use."""
        self._stand_ins.add(name)
        return self.graph.tensor(name, CHANNEL)

    def owned_parameter(
        self,
        module: str,
        key: str,
        shape: Sequence[Dim | None],
        axes: Axes,
        in_product: bool = False,
        repeated: bool = False,
    ) -> Node:
        """A parameter of the submodule `module`."""
        name = self.name_of(module, key)
        self.own(module)
        of_trailing = bool(self.trailing) and axes == CHANNEL
        sizes = tuple(map(certain, shape))
        made = Parameter(name, f"{module}.{key}", sizes, axes, in_product, repeated, of_trailing)
        self._declare(self.parameters, made, "name")
        return self.graph.tensor(name, axes)

    def declare_parameter(self, parameter: Parameter, field: str) -> Node:
        """Adds a parameter, and returns what steps take of it."""
        self._declare(self.parameters, parameter, field)
        return self._leaf(parameter)

    def _leaf(self, parameter: Parameter) -> Node:
        node = self.graph.tensor(parameter.name, parameter.axes)
        if parameter.learnt:
            return node
        return self.graph.add("detach", node, name=f"{parameter.name}_detached")

    def buffer(self, module: str, key: str, axes: Axes = CHANNEL) -> Node:
        name = self.name_of(module, key)
        self._declare(self.buffers, Buffer(name, f"{module}.{key}", axes, integer=axes == SCALAR), "name")
        return self.graph.tensor(name, axes)

    # Constants

    def scalar(self, value: float | str, field: str) -> Node:
        """A step's constant: a literal, or an argument that the module keeps as an attribute."""
        if not isinstance(value, str):
            return self.graph.literal(value)
        self.symbols.argument(value, field, ("float", "int"))
        self.own(value, field, owner="argument")
        self._declare(self.constants, Constant(value, value), field)
        return self.graph.scalar(value)

    def constant(self, value: float | str, name: str | None) -> Node:
        """An operand that is a constant. name: the attribute that holds a number."""
        if name is None:
            return self.scalar(value, "constant")
        self.own(name)
        self._declare(self.constants, Constant(name, name), "name")
        return self.graph.scalar(name)

    def inverse(self, constant: Node, field: str) -> Node:
        """1 / constant. Refuses a number of which a double cannot hold that."""
        if constant.op != "literal":
            return self.graph.add("reciprocal", constant, name=f"inverse_{constant.name}")
        value = constant.number
        inverse = 1.0 / value if value else 0.0
        if value == 0:
            self.refuse("FG205", f"division by the {field} 0", field)
        elif math.isinf(inverse):
            self.refuse("FG205", f"1 / {value} is too large for a double", field)
        return self.graph.literal(inverse)

    def owned_scalar(self, value: float | str | None, module: str, key: str) -> Node:
        """A constant that a norm holds, read there at run time so that later changes to it count."""
        self.own(module)
        self.symbols.constructed((self.channels,), None)
        if isinstance(value, str):
            self.symbols.argument(value, key, ("float", "int"))
        return self.graph.scalar(self.owned_constant(module, key))

    def owned_constant(self, module: str, key: str) -> str:
        """The name of a constant of the submodule `module`."""
        name = self.name_of(module, key)
        self._declare(self.constants, Constant(name, f"{module}.{key}"), "name")
        return name

    # Names

    def name_of(self, module: str, key: str) -> str:
        """The ops' name of what the module calls `bn.weight`: bn_weight, unless the spec so calls something else."""
        return self._derived[module, key]

    def _declare(self, table: dict[str, Owned], thing: Owned, field: str) -> None:
        """Adds something that the module holds. It and the inputs are arguments of one op."""
        if thing.name in self.spec.inputs and thing.name not in table:
            self.refuse("FG305", f"'{thing.name}' is an input, too", field, "rename one")
        table[thing.name] = thing
        self.places.of.setdefault(thing.name, self.diagnostics.place(field))

    def own(self, name: str, field: str = "name", owner: str | None = None, hint: str | None = None) -> None:
        """Adds an attribute of the module; two steps cannot own the same. owner: "argument" if that holds it for
        all steps."""
        if self._owners.setdefault(name, owner or self.step) != (owner or self.step):
            self.refuse("FG305", f"two steps would own the attribute '{name}'", field, hint)
