"""From a spec to a Chain: walks the steps, lets each add itself to the graph, and collects every mistake."""

from __future__ import annotations

from collections.abc import Iterable

from fusegen.errors import Diagnostic, SpecError
from fusegen.ir.chain import Buffer, Chain, Constant, Contraction, Input, Parameter
from fusegen.ir.extent import ALL, CHANNEL, FULL, SCALAR, Dim, Extent
from fusegen.ir.graph import Graph, Node, verify
from fusegen.ir.names import OP_NAMES, REFERENCE_NAMES, clashes
from fusegen.ops.step import StepError
from fusegen.spec.wording import nearest


def build_chain(spec, document, training: bool) -> Chain:
    """The chain of `spec` for training or evaluation. Raises SpecError with every step that does not fit.

    document: where the spec's fields stand in the file, for the errors.
    """
    builder = ChainBuilder(spec, training)
    running = builder.start
    diagnostics: list[Diagnostic] = []
    for name in spec.inputs:
        if name in OP_NAMES:
            message = f"the name '{name}' is used by the generated code itself"
            diagnostics.append(document.diagnostic("FG206", message, ("inputs", name), key=True))
    for name, argument in spec.arguments.items():
        for symbol in builder.unconstructible(argument.is_ if argument.type == "shape" else ()):
            diagnostics.append(
                document.diagnostic("FG301", NO_SIZE.format(symbol), ("arguments", name), hint=SIZE_HINT)
            )
    for index, step in enumerate(spec.chain):
        builder.step = index
        try:
            running = step.build(builder, running)
            builder.remember(step, running)
        except StepError as error:
            path = ("chain", index) + ((error.field,) if error.field else ())
            diagnostics.append(document.diagnostic(error.code, error.message, path, hint=error.hint))
            if running is None:  # the contraction itself: no step behind it has anything to work on
                break
    if diagnostics:
        raise SpecError(diagnostics)
    chain = builder.finish(running)
    if found := clashes(chain):
        raise SpecError([document.diagnostic("FG305", message, ("chain",)) for message in found])
    verify([chain.result, *chain.updates.values()])
    return chain


NO_SIZE = "the constructor needs the size '{}', but no argument gives it"
SIZE_HINT = "add it to 'arguments' as {type: dim}"


class ChainBuilder:
    """What a step may ask for while it adds itself to the graph. step: the index of the one that does."""

    def __init__(self, spec, training: bool) -> None:
        self.spec = spec
        self.training = training
        self.step = 0
        self.graph = Graph(_names(spec))
        self.inputs = [Input(name, tuple(shape)) for name, shape in spec.inputs.items()]
        first = self.inputs[0]
        self.rows, self.channels = first.shape if len(first.shape) == 2 else (0, 0)
        self.tail_inputs: dict[str, Node] = {}
        self.contraction: Contraction | None = None
        self.parameters: dict[str, Parameter] = {}
        self.buffers: dict[str, Buffer] = {}
        self.constants: dict[str, Constant] = {}
        self.updates: dict[str, Node] = {}
        self.batch_norms: list[tuple[str, bool]] = []
        self.group_counts: list[Dim] = []
        self._saved: dict[str, Node] = {}
        self._owners: dict[str, object] = {}
        self._source: Node | None = None

    @property
    def start(self) -> Node | None:
        """The running value before the first step; the first step that is no contraction makes it a leaf of
        the tail."""
        first = self.spec.chain[0]
        return None if first.op == "linear" else self._begin(self.inputs[0].name)

    def _begin(self, name: str) -> Node:
        self._source = self.graph.tensor(name, FULL)
        return self._source

    def contract(self, step) -> Node:
        if step is not self.spec.chain[0]:
            raise StepError("FG308", "linear can only be the first step of a chain")
        self._own(step.name)
        out = self.dim(step.out_features, "out_features")
        self.constructed((self.channels, out), None)
        self.contraction = Contraction(step.name, self.inputs[0].name, self.channels, out)
        self.channels = out
        return self._begin(self.contraction.product)

    def finish(self, result: Node) -> Chain:
        assert self._source is not None
        return Chain(
            graph=self.graph,
            rows=self.rows,
            channels=self.channels,
            inputs=self.inputs,
            source=self._source,
            result=result,
            contraction=self.contraction,
            training=self.training,
            parameters=self.parameters,
            buffers=self.buffers,
            constants=self.constants,
            tail_inputs=self.tail_inputs,
            updates=self.updates,
            batch_norms=self.batch_norms,
            group_counts=self.group_counts,
        )

    def remember(self, step, value: Node) -> None:
        if step.save is None:
            return
        if step.save in self._saved:
            raise StepError("FG208", f"a value named '{step.save}' exists already", "save")
        if step.save in self.spec.inputs:
            raise StepError("FG208", f"'{step.save}' is an input: a value needs another name", "save")
        if step.save in REFERENCE_NAMES:
            raise StepError("FG206", f"the name '{step.save}' is used by the generated code itself", "save")
        self._saved[step.save] = value

    # Sizes and shapes

    def dim(self, value: int | str, field: str) -> Dim:
        if isinstance(value, str) and value not in self.spec.dims:
            raise StepError("FG209", f"'{value}' is not a symbol of dims", field, _suggest(value, self.spec.dims))
        return value

    def constructed(self, dims: Iterable[Dim], field: str | None) -> None:
        """Refuses sizes that the constructor needs and does not get."""
        for symbol in self.unconstructible(dims):
            raise StepError("FG301", NO_SIZE.format(symbol), field, SIZE_HINT)

    def unconstructible(self, dims: Iterable[Dim]) -> list[str]:
        return [
            dim for dim in dims if isinstance(dim, str) and dim in self.spec.dims and dim not in self.spec.arguments
        ]

    def groups(self, value: int | str) -> Dim:
        if isinstance(value, str):
            argument = self.spec.arguments.get(value)
            if argument is None:
                raise StepError(
                    "FG301", f"no argument named '{value}'", "num_groups", _suggest(value, self.spec.arguments)
                )
            if argument.type != "int":
                raise StepError("FG302", f"argument '{value}' should have the type int", "num_groups")
        sizes = self.typical(value), self.typical(self.channels)
        if sizes[1] % sizes[0]:
            raise StepError("FG304", f"{sizes[0]} groups do not divide {sizes[1]} channels", "num_groups")
        if value not in self.group_counts:
            self.group_counts.append(value)
        return value

    def typical(self, dim: Dim) -> int:
        """The size that planning assumes for a dimension or an integer argument."""
        if isinstance(dim, int):
            return dim
        return self.spec.dims[dim] if dim in self.spec.dims else self.spec.arguments[dim].typical

    def extent_of(self, shape: tuple[Dim, ...], field: str) -> Extent:
        """Where a tensor of this shape varies when it is broadcast to [rows, channels]."""
        if len(shape) > 2:
            raise StepError("FG303", f"{len(shape)} dimensions do not broadcast to [rows, channels]", field)
        rows, channels = ((1,) * (2 - len(shape)) + shape) if shape else (1, 1)
        for dim, full, axis in ((rows, self.rows, "rows"), (channels, self.channels, "channels")):
            if dim not in (1, full):
                raise StepError("FG303", f"{dim} does not broadcast to {full} {axis}", field)
        return Extent(rows != 1, 1 if channels == 1 else ALL)

    # Tensors and constants

    def parameter(self, name: str, shape: object, init: object) -> Node:
        if shape is None:
            if name not in self.parameters:
                hint = _suggest(name, self.parameters)
                raise StepError(
                    "FG301", f"parameter '{name}' is used here before a step gives its shape", "parameter", hint
                )
            return self.graph.tensor(name, self.parameters[name].extent)
        self._own(name, "parameter")
        if init is None:
            raise StepError("FG202", f"parameter '{name}' needs an init", "parameter")
        if isinstance(init, str) and init not in ("randn", "rand", "ones", "zeros"):
            self._argument(init, "init")
        dims = tuple(self._shape(shape))
        extent = self.extent_of(dims, "shape")
        self.constructed(dims, "shape")
        self.parameters[name] = Parameter(name, name, dims, extent)
        return self.graph.tensor(name, extent)

    def _shape(self, shape: object) -> list[Dim]:
        if isinstance(shape, str):
            argument = self.spec.arguments.get(shape)
            if argument is None or argument.type != "shape":
                raise StepError(
                    "FG301", f"no argument of type shape named '{shape}'", "shape", _suggest(shape, self.spec.arguments)
                )
            shape = argument.is_
        return [self.dim(dim, "shape") for dim in shape]

    def owned_parameter(
        self, module: str, key: str, shape: tuple[Dim, ...], extent: Extent, in_product: bool = False
    ) -> Node:
        name = f"{module}_{key}"
        if name in self.parameters:
            raise StepError("FG305", f"'{module}.{key}' and parameter '{name}' would share a name", "name")
        self._own(module)
        self.parameters[name] = Parameter(name, f"{module}.{key}", shape, extent, in_product)
        return self.graph.tensor(name, extent)

    def buffer(self, module: str, key: str, extent: Extent = CHANNEL) -> Node:
        name = f"{module}_{key}"
        self.buffers[name] = Buffer(name, f"{module}.{key}", extent, integer=extent == SCALAR)
        return self.graph.tensor(name, extent)

    def update_buffer(self, buffer: Node, value: Node) -> None:
        self.updates[buffer.name] = value

    def uses_batch_statistics(self, name: str, tracked: bool) -> None:
        self._own(name)
        self.batch_norms.append((name, tracked))

    def scalar(self, value: float | str, field: str) -> Node:
        """A step's constant: a literal, or an argument that the module keeps as an attribute."""
        if not isinstance(value, str):
            return self.graph.literal(value)
        self._argument(value, field)
        self._own(value, field, owner="argument")
        self.constants[value] = Constant(value, value)
        return self.graph.scalar(value)

    def constant(self, value: float | str, name: str | None) -> Node:
        if name is None:
            return self.scalar(value, "constant")
        self._own(name)
        self.constants[name] = Constant(name, name)
        return self.graph.scalar(name)

    def owned_scalar(self, value: float | str | None, module: str, key: str) -> Node:
        """A constant that a norm holds, read there at run time so that later changes to it count."""
        self._own(module)
        self.constructed((self.channels,), None)
        if isinstance(value, str):
            self._argument(value, key)
        name = f"{module}_{key}"
        self.constants[name] = Constant(name, f"{module}.{key}")
        return self.graph.scalar(name)

    def value(self, name: str) -> Node:
        if name not in self._saved:
            raise StepError("FG301", f"no step before this one saves '{name}'", "value", _suggest(name, self._saved))
        return self._saved[name]

    def input(self, name: str) -> Node:
        known = {tensor.name: tensor for tensor in self.inputs}
        if name not in known:
            raise StepError("FG301", f"no input named '{name}'", "input", _suggest(name, known))
        if known[name].shape != (self.rows, self.channels):
            raise StepError("FG303", f"input '{name}' must have the shape [{self.rows}, {self.channels}] here", "input")
        self.tail_inputs[name] = self.graph.tensor(name, FULL)
        return self.tail_inputs[name]

    def _argument(self, name: str, field: str) -> None:
        argument = self.spec.arguments.get(name)
        if argument is None:
            raise StepError("FG301", f"no argument named '{name}'", field, _suggest(name, self.spec.arguments))
        if argument.type not in ("float", "int"):
            raise StepError("FG302", f"argument '{name}' is a {argument.type}, a number is needed", field)

    def _own(self, name: str, field: str = "name", owner: str | None = None) -> None:
        """Notes an attribute of the module; two steps cannot own the same. owner: "argument" if that holds it
        for all steps."""
        if name in OP_NAMES:
            raise StepError("FG206", f"the name '{name}' is used by the generated code itself", field)
        if self._owners.setdefault(name, owner or self.step) != (owner or self.step):
            raise StepError("FG305", f"two steps would own the attribute '{name}'", field)


def _names(spec) -> frozenset[str]:
    """What the spec calls its tensors and constants."""
    operands = [step.parameter or step.name for step in spec.chain if hasattr(step, "parameter")]
    return frozenset({*spec.inputs, *spec.arguments, *operands} - {None})


def _suggest(name: str, known) -> str | None:
    close = nearest(name, list(known))
    return f"did you mean '{close}'?" if close else None
