"""What the forward and the backward op of a variant share: which tensors there are, and what is said of each."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.ir.axes import Dim
from fusegen.ir.multiples import text_of, times
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program, Role, Tensor, Variant
from fusegen.plan.programs.program_io import statistics_of_ranks
from fusegen.render.ops.op import IMAGE_SHAPE, INNER, PIECES, Field, Op, role_text, size_text
from fusegen.render.programs.launchers_header import SAMPLE_ROWS, argument_tensors, struct
from fusegen.render.programs.sizes import sizes
from fusegen.render.text.identifiers import identifier


class VariantOps:
    """The tensors of the ops of one variant."""

    def __init__(self, plan: Plan, variant: Variant) -> None:
        self.plan, self.variant, self.chain = plan, variant, variant.chain
        chain = self.chain
        self.samples = variant.forward.draws_samples or variant.backward.draws_samples
        self.groups = variant.forward.groups is not None or variant.backward.groups is not None
        self.constants = sorted({*variant.forward.constants, *variant.backward.constants})
        self._dims: dict[Dim, Dim] = {chain.rows: "rows", chain.channels: "channels"}
        self._dims |= {f"_{name}_rows": f"{name}_rows" for name in chain.compact}
        if chain.contraction:
            self._dims.setdefault(chain.contraction.width, "in_features")
        self._own_rows = {f"{name}_rows": f"own_rows({index})" for index, name in enumerate(chain.compact)}

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
        return list({t.name: t for t in self.variant.forward.inputs if t.name in names}.values())

    def of_ranks(self) -> list[Tensor]:
        """The statistics of all ranks that the forward op takes; none but over ranks."""
        names = {tensor.name for tensor in statistics_of_ranks(self.chain)}
        return [tensor for tensor in self.variant.forward.inputs if tensor.name in names]

    def seeds(self) -> list[Tensor]:
        """The tensors of the seed, int64, that the dropouts of both programs read; empty without dropouts."""
        programs = (self.variant.forward, self.variant.backward)
        return list({t.name: t for program in programs for t in program.inputs if t.role == "seed"}.values())

    # Parts of an op

    def start(self, program: Program, returns: str) -> Op:
        op = Op(f"{self.plan.spec.name}_{program.name}", program.name, struct(program), returns)
        if self.plan.spec.invariant:
            op.traits.append("row_invariant(&glue::multiply_rows)")
        return op

    def read(self, program: Program, name: str, role: Role, shape: str, optional: bool = False) -> Field:
        """An argument that kernels read, if its program does. shape: as of tensor_shape()."""
        known = {tensor.name for tensor, written in argument_tensors(program) if not written}
        parameter = self.chain.parameters.get(name)
        if name not in known:
            text = f'glue::read("{name}", {role_text(role)}{shape})'
        else:
            use = "BIAS" if parameter is not None and parameter.in_product else "READ"
            text = f"FUSEGEN_{use}({identifier(name, 'arg')}, {role_text(role)}{shape})"
        return Field(name, "tensor", f"{text}.as_optional()" if optional else text, optional)

    def given(self, program: Program, name: str, role: Role, shape: tuple[Dim, ...], optional: bool = False) -> Field:
        """An argument of a tensor that the module is given or gives away, or its gradient."""
        return self.read(program, name, role, self.given_shape(name, shape), optional)

    def given_shape(self, name: str, shape: tuple[Dim, ...]) -> str:
        if self.variant.has_contiguous_layout and name == self.chain.source.name and not self.chain.has_own_images:
            return f", {INNER}"
        if self.variant.has_contiguous_layout and shape == (self.chain.rows, self.chain.channels):
            return f", {IMAGE_SHAPE}"
        return self.shape_text(shape)

    def shape_text(self, shape: Sequence[Dim]) -> str:
        """The sizes of a tensor, behind its role."""
        return "".join(f", {self.size_text(dim)}" for dim in shape)

    def size_text(self, dim: Dim) -> str:
        return size_text(dim if isinstance(dim, int) else text_of(dim, self._dims), self._own_rows)

    def learnt_shape(self, *named: tuple[Dim, Dim]) -> str:
        """The sizes of a tensor that tells those of the call: what each is called, and what the spec says."""
        texts = [(size_text(name, self._own_rows), dim) for name, dim in named]
        return "".join(f", glue::known({t}, {dim})" if isinstance(dim, int) else f", {t}" for t, dim in texts)

    def rows_and_channels(self, width: Dim, parts: int = 1) -> str:
        """The shape [rows, channels] of the first tensor of an op. width: the channels of all parts, as the spec has
        them."""
        return self.learnt_shape(("rows", self.chain.rows), (times(parts, "channels"), width))

    def tensor_shape(self, tensor: Tensor) -> str:
        return "".join(f", {size_text(dim, self._own_rows)}" for dim in sizes(tensor))

    def add_numbers(self, op: Op, program: Program, constants: Sequence[str]) -> None:
        """The arguments behind the tensors."""
        op.fields.append(Field("_dtype_mode", "size", "glue::kDtypeMode"))
        if self.chain.result.of_rows:  # the backward op sees no tensor of the channels for certain
            op.fields.append(Field("_channels", "size", 'glue::size("_channels", kChannels)'))
        if self.chain.result.pool:
            op.fields.append(Field("_windows", "numbers", "glue::kWindowList"))
        if self.chain.result.of_samples:  # nor one of the rows
            op.fields.append(Field("_rows", "size", 'glue::size("_rows", kRows)'))
            if self.variant.has_contiguous_layout:
                op.fields.append(Field("_positions", "size", 'glue::size("_positions", kPositions)'))
        if self.groups:
            op.fields.append(Field("_groups", "size", 'glue::size("_groups", kGroups)'))
        if self.variant.of_samples:
            op.fields.append(Field("_samples", "size", 'glue::size("_samples", kSamples)'))
        read = {tensor.name for tensor in program.inputs if tensor.compact}
        for index, name in enumerate(self.chain.compact):
            member = identifier(name, "own") if name in read else ""
            op.fields.append(_size(f"_{name}_rows", f"own_rows({index})", member))
        for name in constants:
            known = name in program.constants
            text = f"FUSEGEN_CONSTANT({identifier(name, 'arg')})" if known else f'glue::constant("{name}")'
            op.fields.append(Field(name, "number", text))
        if self.samples:
            member = SAMPLE_ROWS if program.draws_samples else ""
            op.fields.append(_size(f"_{SAMPLE_ROWS}", "kSampleRows", member))
        if self.plan.has_precisions and self.chain.contraction:
            op.fields.append(Field("_precision", "size", "glue::kPrecision"))
            op.fields += [Field(name, "tensor", f'glue::pieces("{name}")', is_optional=True) for name in PIECES]
            op.traits.append("with_products(&glue::in_precision)")

    def add_needs(self, op: Op, needs: list[str]) -> None:
        op.needs = needs
        op.fields.append(Field("_needs", "flags", f"glue::needs({len(needs)})"))

    def add_images(self, op: Op, of_gradient: bool) -> None:
        """of_gradient: whether the first argument is the result's gradient, not the source."""
        if self.variant.has_contiguous_layout:
            form = IMAGE_SHAPE if of_gradient or self.chain.has_own_images else INNER
            if of_gradient and self.chain.result.of_samples:
                form = "kOfSamples"
            op.traits.append(f"of_images({form}, {self.chain.number_of_parts}, &glue::outer_input<kCopier>)")


def _size(name: str, symbol: str, member: str) -> Field:
    if member:
        return Field(name, "size", f'FUSEGEN_SIZE("{name}", {symbol}, {member})')
    return Field(name, "size", f'glue::size("{name}", {symbol})')
