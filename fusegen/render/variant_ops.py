"""What the forward and the backward op of a variant share: which tensors there are, and what is said of each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from fusegen.ir.axes import Dim
from fusegen.ir.multiples import text_of
from fusegen.plan.ingredients import statistics_of_ranks
from fusegen.plan.model import Program, Role, Tensor, Variant
from fusegen.plan.plan import Plan
from fusegen.render.launchers_header import SAMPLE_ROWS, argument_tensors, struct, symbol
from fusegen.render.op import OPTIONAL, OUTER, Argument, Op, arg, dtype_field, out, read
from fusegen.render.sizes import sizes
from fusegen.render.spelling import spell


class VariantOps:
    """The tensors and the types of the ops of one variant."""

    def __init__(self, plan: Plan, variant: Variant) -> None:
        self.plan, self.variant, self.chain = plan, variant, variant.chain
        self.prefix = f"{variant.name}_" if variant.name else ""
        chain = self.chain
        self.samples = variant.forward.draws_samples or variant.backward.draws_samples
        self.groups = variant.forward.groups is not None or variant.backward.groups is not None
        self.constants = sorted({*variant.forward.constants, *variant.backward.constants})
        self._dims = {chain.rows: "rows", chain.channels: "channels"}
        self._dims |= {f"_{name}_rows": f"{name}_rows" for name in chain.compact}
        if chain.contraction:
            self._dims.setdefault(chain.contraction.width, "in_features")

    # Which tensors

    def sources(self) -> list[tuple[str, str, tuple[Dim, ...]]]:
        """(name, role, shape) of the differentiable tensors, in the order of the ops' arguments."""
        chain = self.chain
        shape = (chain.rows, chain.source_channels)
        found: list[tuple[str, str, tuple[Dim, ...]]] = []
        if chain.contraction is None:
            found.append((chain.source.name, "activation", shape))
        found += [(n, f"input {n}", self.input_shape(n)) for n in chain.further]
        for p in chain.parameters.values():
            found.append((p.name, "parameter", (chain.channels,) if p.repeated or p.trailing else p.shape))
        return found

    def masks(self) -> list[tuple[str, tuple[Dim, ...]]]:
        """(name, shape) of the inputs of bool, whose arguments come after those of the differentiable ones."""
        return [(name, self.input_shape(name)) for name in self.chain.masks]

    def input_shape(self, name: str) -> tuple[Dim, ...]:
        """The shape in which the ops take a further input: what has rows is a matrix."""
        node, given = self.chain.node_of(name), {each.name: each.shape for each in self.chain.inputs}
        if node is None or "N" not in node.axes:
            flat = self.chain.trailing and node is not None and "C" in node.axes
            return (self.chain.channels,) if flat else given[name]
        if name in self.chain.compact:
            return (f"_{name}_rows", self.chain.channels)
        return (self.chain.rows, self.chain.channels if "C" in node.axes else 1)

    def shapes(self) -> dict[str, tuple[Dim, ...]]:
        """The shapes in which the ops take inputs and parameters, by name."""
        return {name: shape for name, _, shape in self.sources()} | dict(self.masks())

    def targets(self) -> list[Tensor]:
        """The inputs that have the number of a channel for each row: one for each, whatever their dimensions."""
        return [t for t in self.variant.forward.inputs if t.role == "index"]

    def needs(self) -> list[str]:
        """The differentiable arguments of the forward op, in order; `needs` has one flag for each."""
        contraction = self.chain.contraction
        head = [contraction.operand, contraction.weight] if contraction else []
        return [*head, *(name for name, _, _ in self.sources())]

    def buffers(self) -> list[Tensor]:
        names = self.chain.buffers
        used = {t.name: t for p in (self.variant.forward,) for t in p.inputs if t.name in names}
        return list(used.values())

    def of_ranks(self) -> list[Tensor]:
        """The statistics of all ranks that the forward op takes; none but over ranks."""
        names = {tensor.name for tensor in statistics_of_ranks(self.chain)}
        return [tensor for tensor in self.variant.forward.inputs if tensor.name in names]

    def seeds(self) -> list[Tensor]:
        """The tensors of the seed, int64, that the dropouts of both programs read; empty without dropouts."""
        programs = (self.variant.forward, self.variant.backward)
        return list({t.name: t for program in programs for t in program.inputs if t.role == "seed"}.values())

    # Parts of an op

    def products(self) -> str:
        """C++: what makes the products of a package that has precisions."""
        error_text = f"fusegen_{self.plan.spec.name}_error_text"
        return f"const glue::Products products(args, precision, dtypes.activation, launch.stream, {error_text});"

    def start(self, direction: str, program: Program) -> Op:
        return Op(
            name=f"{self.plan.spec.name}_{program.name}",
            function=program.name,
            symbol=symbol(self.plan.spec.name, program),
            struct=struct(program),
            forward=direction == "forward",
            groups=program.groups is not None,
            tiled=self.variant.tiled,
        )

    def add_numbers(self, op: Op, constants: Sequence[str]) -> None:
        op.arguments.append(Argument("dtype_mode", "int64_t", "int", ours=True))
        if self.chain.result.of_rows:  # the backward op sees no tensor of the channels for certain
            op.arguments.append(Argument("channels", "int64_t", "int", ours=True))
        if self.groups:
            op.arguments.append(Argument("groups", "int64_t", "int", ours=True))
        op.arguments += [Argument(f"{name}_rows", "int64_t", "int", ours=True) for name in self.chain.compact]
        op.arguments += [Argument(name, "double", "float") for name in constants]
        if self.samples:
            op.arguments.append(Argument(SAMPLE_ROWS, "int64_t", "int", ours=True))
        if self.plan.has_precisions and self.chain.contraction:
            op.arguments.append(Argument("precision", "int64_t", "int", ours=True))
            op.arguments += [Argument(name, *OPTIONAL, ours=True) for name in ("operand_pieces", "weight_pieces")]

    def add_schema(self, op: Op, result: str) -> None:
        arguments = ", ".join(f"{a.schema} {a.public}" for a in op.arguments)
        result = f"({result})" if op.forward else result
        op.schema = [f"{line} " for line in textwrap.wrap(f"({arguments}) -> {result}", 84, break_on_hyphens=False)]
        op.schema[-1] = op.schema[-1].rstrip()

    def launched(self, program: Program, made: set[str]) -> list[tuple[str, str]]:
        """The launcher's arguments. made: the tensors that the op has made itself; others it was given."""
        found = []
        for tensor, written in argument_tensors(program):
            if written:
                buffer = tensor.name in self.chain.buffers
                value = f"glue::write({arg(tensor.name) if buffer else out(tensor.name)})"
            else:
                value = f"glue::read({spell(tensor.name, 'out' if tensor.name in made else 'in')})"
                parameter = self.chain.parameters.get(tensor.name)
                if parameter is not None and parameter.in_product:
                    value = f"bias_in_product ? nullptr : {value}"
            found.append((arg(tensor.name), value))
        found += [(spell(t.name, "own"), f"{t.name}_rows") for t in program.inputs if t.compact]
        found += [(arg(name), arg(name)) for name in program.constants]
        return [*found, *([(SAMPLE_ROWS, SAMPLE_ROWS)] if program.draws_samples else [])]

    def read_input(self, name: str, role: Role, shape: tuple[Dim, ...]) -> str:
        dtype = "ScalarType::Bool" if role == "mask" else f"dtypes.{dtype_field(role)}"
        return read(name, dtype, self.given_text(name, shape))

    def given_text(self, name: str, shape: tuple[Dim, ...]) -> str:
        """The shape of a tensor that the module is given or gives away, or its gradient, as C++ sizes."""
        if self.variant.tiled and name == self.chain.source.name and not self.chain.has_own_images:
            return "images.inner()"
        if self.variant.tiled and shape == (self.chain.rows, self.chain.channels):
            return OUTER
        return self.shape_text(shape)

    def declare_sizes(self, op: Op, of: str) -> None:
        """of: whether the first argument is the source or the result's gradient, where these may be of images."""
        if self.variant.tiled:
            of = "outer" if of == "gradient" or self.chain.has_own_images else "inner"
            parts = self.chain.number_of_parts
            divided = f", {parts}" if parts > 1 else ""
            op.sizes.append(f"const auto images = glue::Images::of_{of}({op.like}{divided});")
            if parts > 1 and op.forward:
                op.sizes.append(f'args.divisor("parts", {parts}, images.width());')
            op.sizes.append("const int64_t rows = images.rows(), channels = images.channels();")
        else:
            op.sizes.append(f"const int64_t rows = {op.like}.size(0);")
            if self.chain.result.of_rows:
                return  # the number of channels is an argument
            if not op.forward:
                op.sizes.append(f"const int64_t channels = {op.like}.size(1);")
            elif not self.chain.contraction:
                op.sizes += self.channels_of(f"{op.like}.size(1)")

    def channels_of(self, width: str) -> list[str]:
        """C++: the channels of a part, of a source of this width."""
        parts = self.chain.number_of_parts
        if parts == 1:
            return [f"const int64_t channels = {width};"]
        return [f'args.divisor("parts", {parts}, {width});', f"const int64_t channels = {width} / {parts};"]

    def shape_text(self, shape: tuple[Dim, ...], first: bool = False, second: str = "") -> str:
        """A shape as C++ sizes. first: where symbols get their values, so that they fit any size."""
        sizes = [
            str(dim) if isinstance(dim, int) else "glue::kAny" if first else text_of(dim, self._dims) for dim in shape
        ]
        if second:
            sizes[1] = second
        return "{" + ", ".join(sizes) + "}"

    @staticmethod
    def sizes_text(tensor: Tensor) -> str:
        return f"{{{', '.join(map(str, sizes(tensor)))}}}"

    @staticmethod
    def dtype_text(tensor: Tensor) -> str:
        fixed = {"mask": "ScalarType::Bool", **dict.fromkeys(("count", "index", "seed"), "ScalarType::Long")}
        return fixed.get(tensor.role) or f"dtypes.{dtype_field(tensor.role)}"

    def check_rows(self, op: Op) -> None:
        """The numbers of rows of what has fewer than others."""
        op.checks += [f'args.divisor("{name}_rows", {name}_rows, rows);' for name in self.chain.compact]

    def check_groups(self, op: Op) -> None:
        if self.groups:
            op.checks.append('args.divisor("groups", groups, channels);')

    def check_samples(self, op: Op) -> None:
        if self.samples:
            op.checks.append(f'args.divisor("{SAMPLE_ROWS}", {SAMPLE_ROWS}, rows);')

    def declare_bias(self, op: Op, program: Program) -> None:
        used = {t.name for t in program.given} & {p.name for p in self.chain.parameters.values() if p.in_product}
        if used:
            op.sizes.append("// The library adds the bias before it rounds to 16 bits; in float32 the kernels do.")
            op.sizes.append("const bool bias_in_product = glue::is_narrow(dtypes.activation);")
