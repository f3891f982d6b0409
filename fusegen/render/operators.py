"""The four faces of one torch op: its schema, its C++ arguments, what it checks, what it passes to the launcher."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from string import ascii_lowercase

from fusegen.ir.axes import Dim
from fusegen.plan.model import Program, Role, Tensor, Variant
from fusegen.plan.plan import Plan
from fusegen.render.launchers_header import argument_tensors, struct, symbol
from fusegen.render.sizes import sizes
from fusegen.render.spelling import spell


@dataclass(frozen=True)
class Argument:
    """One argument of an op: its C++ type and its type in the schema. ours: no part of the chain, such as the mode."""

    name: str
    cpp: str
    schema: str
    ours: bool = False

    @property
    def public(self) -> str:
        """What the schema and Python call it: the chain's names as they are, ours with an underscore before them,
        which no name of a spec has."""
        return f"_{self.name}" if self.ours else self.name

    @property
    def local(self) -> str:
        """What bindings.cpp calls it."""
        return self.name if self.ours else spell(self.name, "arg")


@dataclass
class Op:
    """Everything that bindings.cpp says of one op. struct, launched: the type of its launcher's arguments, and each of
    them with its value."""

    name: str
    function: str
    symbol: str
    struct: str
    forward: bool
    groups: bool
    arguments: list[Argument] = field(default_factory=list)
    first: str = ""
    sizes: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    allocations: list[str] = field(default_factory=list)
    launched: list[tuple[str, str]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    returns: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    schema: list[str] = field(default_factory=list)

    @property
    def like(self) -> str:
        """C++: the first argument, on whose device all happens."""
        return _arg(self.first)


_TENSOR = ("const Tensor&", "Tensor")
_OPTIONAL = ("const OptionalTensor&", "Tensor?")


def dtype_field(role: Role) -> str:
    """The member of `Dtypes` that holds a role's dtype."""
    return spell(role.removeprefix("input "), "dtype") if role.startswith("input ") else role


class OpRenderer:
    """Renders the ops of one variant."""

    def __init__(self, plan: Plan, variant: Variant) -> None:
        self.plan, self.variant, self.chain = plan, variant, variant.chain
        self.prefix = f"{variant.name}_" if variant.name else ""
        chain = self.chain
        self.operand = chain.contraction.operand if chain.contraction else None
        self.groups = variant.forward.groups is not None or variant.backward.groups is not None
        self.constants = sorted({*variant.forward.constants, *variant.backward.constants})
        self._dims = {chain.rows: "rows", chain.channels: "channels"}
        if chain.contraction:
            self._dims.setdefault(chain.contraction.in_features, "in_features")

    # Which tensors

    def sources(self) -> list[tuple[str, str, tuple[Dim, ...]]]:
        """(name, role, shape) of the differentiable tensors, in the order of the ops' arguments."""
        chain = self.chain
        shape = (chain.rows, chain.channels)
        found: list[tuple[str, str, tuple[Dim, ...]]] = []
        if chain.contraction is None:
            found.append((chain.source.name, "activation", shape))
        found += [(n, f"input {n}", shape) for n, node in chain.tail_inputs.items() if node is not chain.source]
        found += [(p.name, "parameter", p.shape) for p in chain.parameters.values()]
        return found

    def needs(self) -> list[str]:
        """The differentiable arguments of the forward op, in order; `needs` has one flag for each."""
        contraction = self.chain.contraction
        head = [contraction.operand, contraction.weight] if contraction else []
        return [*head, *(name for name, _, _ in self.sources())]

    def buffers(self) -> list[Tensor]:
        names = self.chain.buffers
        used = {t.name: t for p in (self.variant.forward,) for t in p.inputs if t.name in names}
        return list(used.values())

    # Forward

    def _written(self) -> set[str]:
        """What the forward kernels write: results, and the buffers that they update."""
        return {t.name for t in self.variant.forward.outputs}

    def forward(self) -> Op:
        chain, program = self.chain, self.variant.forward
        op = self._op("forward", program)
        written = self._written()
        mutated = (f"{letter}{number or ''}" for number in count() for letter in ascii_lowercase)
        if chain.contraction:
            op.arguments += [Argument(self.operand, *_TENSOR), Argument(chain.contraction.weight, *_TENSOR)]
        op.arguments += [Argument(name, *_TENSOR) for name, _, _ in self.sources()]
        for buffer in self.buffers():
            if buffer.name in written:
                op.arguments.append(Argument(buffer.name, _OPTIONAL[0], f"Tensor({next(mutated)}!)?"))
            else:
                op.arguments.append(Argument(buffer.name, *(_OPTIONAL if buffer.optional else _TENSOR)))
        op.first = op.arguments[0].name
        self._scalars(op, self.constants)
        self._forward_checks(op)
        self._forward_body(op, program)
        self._finish(op, ", ".join(f"Tensor {name}" for name in op.returns))
        return op

    def _forward_checks(self, op: Op) -> None:
        chain = self.chain
        op.sizes.append(f"const int64_t rows = {op.like}.size(0);")
        if chain.contraction:
            c = chain.contraction
            op.sizes.append(f"const int64_t channels = {_arg(c.weight)}.size(0);")
            expected = self._shape((chain.rows, c.in_features), first=True)
            op.checks.append(f'args.matrix("{self.operand}", {_arg(self.operand)}, dtypes.activation, {expected});')
            op.checks.append(f"const int64_t in_features = {_arg(self.operand)}.size(1);")
            expected = self._shape((c.out_features, c.in_features), first=True, second="in_features")
            op.checks.append(f'args.matrix("{c.weight}", {_arg(c.weight)}, dtypes.activation, {expected});')
        else:
            op.sizes.append(f"const int64_t channels = {op.like}.size(1);")
        for name, role, shape in self.sources():
            op.checks.append(self._input(name, role, shape))
        written = self._written()
        for buffer in self.buffers():
            if buffer.name in written:
                expected = f"{self._dtype(buffer)}, {self._sizes(buffer)}"
                op.checks.append(f'args.buffer("{buffer.name}", {_arg(buffer.name)}, {expected});')
            else:
                op.checks.append(self._input(buffer.name, "parameter", (chain.channels,)))
        self._check_groups(op)

    def _check_groups(self, op: Op) -> None:
        if self.groups:
            op.checks.append('args.divisor("groups", groups, channels);')

    def _forward_body(self, op: Op, program: Program) -> None:
        chain = self.chain
        if chain.contraction:
            c = chain.contraction
            bias = self._library_bias()
            operand, weight = _arg(c.operand), _arg(c.weight)
            product = (
                f"glue::linear({operand}, {weight}, {bias})"
                if bias
                else f"glue::mm({operand}, glue::transposed({weight}))"
            )
            op.allocations.append(f"const Tensor {_out(c.product)} = {product};")
        returned = {t.name: t for t in program.outputs if t.name not in chain.buffers}
        for tensor in returned.values():
            made = f"glue::empty({op.like}, {self._dtype(tensor)}, {self._sizes(tensor)})"
            op.allocations.append(f"const Tensor {_out(tensor.name)} = {made};")
        names = list(returned)
        if self.variant.needs_source and chain.contraction:
            names.insert(1, chain.contraction.product)
        op.returns = names
        made = {chain.contraction.product} if chain.contraction else set()
        op.launched = self._launched(program, made)
        op.results = [f"return {{{', '.join(_out(name) for name in names)}}};"]
        self._declare_bias(op, program)

    def _library_bias(self) -> str:
        """The bias that the library adds: in 16-bit dtypes only."""
        bias = next((p.name for p in self.chain.parameters.values() if p.in_product), None)
        return f"bias_in_product ? OptionalTensor({spell(bias, 'in')}) : std::nullopt" if bias else ""

    # Backward

    def backward(self) -> Op:
        chain, program = self.chain, self.variant.backward
        op = self._op("backward", program)
        op.arguments.append(Argument(self.variant.result_gradient, *_TENSOR))
        c = chain.contraction
        if c:
            op.arguments += [Argument(self.operand, *_OPTIONAL), Argument(c.weight, *_OPTIONAL)]
        op.arguments += [Argument(t.name, *_TENSOR) for t in self.backward_inputs()]
        op.first = self.variant.result_gradient
        self._scalars(op, program.constants)
        op.needs = self.needs()
        op.arguments.append(Argument("needs", "const std::vector<bool>&", "bool[]", ours=True))
        op.sizes = [f"const int64_t rows = {op.like}.size(0);", f"const int64_t channels = {op.like}.size(1);"]
        shapes = {name: shape for name, _, shape in self.sources()}
        op.checks.append(self._input(op.first, "output", (chain.rows, chain.channels)))
        self._check_groups(op)
        for tensor in self.backward_inputs():
            shape = shapes.get(tensor.name)
            expected = self._shape(shape) if shape is not None else self._sizes(tensor)
            op.checks.append(_read(tensor.name, self._dtype(tensor), expected))
        self._backward_body(op, program)
        self._finish(op, "Tensor[]")
        return op

    def backward_inputs(self) -> list[Tensor]:
        """What the backward op takes besides the result's gradient and the contraction's operands."""
        return [t for t in self.variant.backward.inputs if t.name != self.variant.result_gradient]

    def _backward_body(self, op: Op, program: Program) -> None:
        c = self.chain.contraction
        index = {name: i for i, name in enumerate(op.needs)}
        shapes = {name: shape for name, _, shape in self.sources()}
        for tensor in program.outputs:
            name = tensor.gradient_of
            wanted = (
                f"needs[{index[name]}]"
                if name in index
                else f"needs[{index[self.operand]}] || needs[{index[c.weight]}]"
            )
            expected = self._shape(shapes[name]) if name in shapes else self._sizes(tensor)
            made = f"glue::empty_if({wanted}, {op.like}, {self._dtype(tensor)}, {expected})"
            op.allocations.append(f"const auto {_out(tensor.name)} = {made};")
        op.launched = self._launched(program, set())
        op.results.append("std::vector<Tensor> gradients;")
        if c:
            grad = _out(self.variant.gradients[c.product].name)
            op.results += [
                "workspace.reset();  // the products may have its memory: they come later in the stream",
                f"if (needs[{index[self.operand]}]) {{",
                f'  gradients.push_back(glue::mm(*{grad}, args.required("{c.weight}", {_arg(c.weight)})));',
                "}",
                f"if (needs[{index[c.weight]}]) {{",
                f'  const Tensor& operand = args.required("{self.operand}", {_arg(self.operand)});',
                f"  gradients.push_back(glue::mm(glue::transposed(*{grad}), operand));",
                "}",
            ]
        others = [self.variant.gradients[name] for name in op.needs if name in self.variant.gradients]
        op.results += [f"if ({name}) gradients.push_back(*{name});" for name in (_out(t.name) for t in others)]
        op.results.append("return gradients;")
        self._declare_bias(op, program)

    def _declare_bias(self, op: Op, program: Program) -> None:
        used = {t.name for t in program.inputs} & {p.name for p in self.chain.parameters.values() if p.in_product}
        if used:
            op.sizes.append("// The library adds the bias before it rounds to 16 bits; in float32 the kernels do.")
            op.sizes.append("const bool bias_in_product = glue::is_narrow(dtypes.activation);")

    # Pieces

    def _op(self, direction: str, program: Program) -> Op:
        return Op(
            name=f"{self.plan.spec.name}_{program.name}",
            function=program.name,
            symbol=symbol(self.plan.spec.name, program),
            struct=struct(program),
            forward=direction == "forward",
            groups=program.groups is not None,
        )

    def _scalars(self, op: Op, constants: Sequence[str]) -> None:
        op.arguments.append(Argument("dtype_mode", "int64_t", "int", ours=True))
        if self.groups:
            op.arguments.append(Argument("groups", "int64_t", "int", ours=True))
        op.arguments += [Argument(name, "double", "float") for name in constants]

    def _finish(self, op: Op, result: str) -> None:
        arguments = ", ".join(f"{a.schema} {a.public}" for a in op.arguments)
        result = f"({result})" if op.forward else result
        op.schema = [f"{line} " for line in textwrap.wrap(f"({arguments}) -> {result}", 84, break_on_hyphens=False)]
        op.schema[-1] = op.schema[-1].rstrip()

    def _launched(self, program: Program, made: set[str]) -> list[tuple[str, str]]:
        """The launcher's arguments. made: the tensors that the op has made itself; others it was given."""
        found = []
        for tensor, written in argument_tensors(program):
            if written:
                buffer = tensor.name in self.chain.buffers
                value = f"glue::write({_arg(tensor.name) if buffer else _out(tensor.name)})"
            else:
                value = f"glue::read({spell(tensor.name, 'out' if tensor.name in made else 'in')})"
                parameter = self.chain.parameters.get(tensor.name)
                if parameter is not None and parameter.in_product:
                    value = f"bias_in_product ? nullptr : {value}"
            found.append((_arg(tensor.name), value))
        return [*found, *((_arg(name), _arg(name)) for name in program.constants)]

    def _input(self, name: str, role: Role, shape: tuple[Dim, ...]) -> str:
        return _read(name, f"dtypes.{dtype_field(role)}", self._shape(shape))

    def _shape(self, shape: tuple[Dim, ...], first: bool = False, second: str = "") -> str:
        """A shape as C++ sizes. first: where symbols get their values, so that they fit any size."""
        sizes = [str(dim) if isinstance(dim, int) else ("glue::kAny" if first else self._dims[dim]) for dim in shape]
        if second:
            sizes[1] = second
        return "{" + ", ".join(sizes) + "}"

    @staticmethod
    def _sizes(tensor: Tensor) -> str:
        return f"{{{', '.join(map(str, sizes(tensor)))}}}"

    @staticmethod
    def _dtype(tensor: Tensor) -> str:
        return "ScalarType::Long" if tensor.role == "count" else f"dtypes.{dtype_field(tensor.role)}"


def _arg(name: str) -> str:
    return spell(name, "arg")


def _out(name: str) -> str:
    return spell(name, "out")


def _read(name: str, dtype: str, shape: str) -> str:
    """Checks an argument that a kernel reads, and makes it contiguous."""
    return f'const Tensor {spell(name, "in")} = args.input("{name}", {_arg(name)}, {dtype}, {shape});'


def ops(plan: Plan) -> list[Op]:
    """Every op of a plan: forward and backward of each variant."""
    return [op for variant in plan.variants for r in (OpRenderer(plan, variant),) for op in (r.forward(), r.backward())]
