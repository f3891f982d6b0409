"""The forward op of a variant: the contraction, then the kernels."""

from __future__ import annotations

from itertools import count
from string import ascii_lowercase

from fusegen.ir.multiples import times
from fusegen.plan.model import Program
from fusegen.render.op import OPTIONAL, OUTER, TENSOR, Argument, Op, arg, out, read
from fusegen.render.spelling import spell
from fusegen.render.variant_ops import VariantOps


class ForwardOp(VariantOps):
    """Renders it."""

    def _written(self) -> set[str]:
        """What the forward kernels write: results, and the buffers that they update."""
        return {t.name for t in self.variant.forward.outputs}

    def op(self) -> Op:
        chain, program = self.chain, self.variant.forward
        op = self.start("forward", program)
        written = self._written()
        mutated = (f"{letter}{number or ''}" for number in count() for letter in ascii_lowercase)
        if c := chain.contraction:
            op.arguments += [Argument(c.operand, *TENSOR), Argument(c.weight, *TENSOR)]
        op.arguments += [Argument(name, *TENSOR) for name, _, _ in self.sources()]
        op.arguments += [Argument(name, *TENSOR) for name, _ in self.masks()]
        op.arguments += [Argument(tensor.name, *TENSOR) for tensor in self.targets()]
        for buffer in self.buffers():
            if buffer.name in written:
                op.arguments.append(Argument(buffer.name, OPTIONAL[0], f"Tensor({next(mutated)}!)?"))
            else:
                op.arguments.append(Argument(buffer.name, *(OPTIONAL if buffer.optional else TENSOR)))
        op.arguments += [Argument(tensor.name, *TENSOR) for tensor in self.of_ranks()]
        op.arguments += [Argument(seed.name, *TENSOR) for seed in self.seeds()]
        op.first = op.arguments[0].name
        self.add_numbers(op, self.constants)
        self._forward_checks(op)
        self._forward_body(op, program)
        self.add_schema(op, ", ".join(f"Tensor {name}" for name in op.returns))
        return op

    def _forward_checks(self, op: Op) -> None:
        chain = self.chain
        self.declare_sizes(op, "source")
        if chain.contraction:
            c = chain.contraction
            if not chain.result.of_rows:
                op.sizes += self.channels_of(f"{arg(c.weight)}.size(0)")
            expected = self.shape_text((chain.rows, c.width), first=True)
            op.checks.append(f'args.matrix("{c.operand}", {arg(c.operand)}, dtypes.activation, {expected});')
            op.checks.append(f"const int64_t in_features = {arg(c.operand)}.size(1);")
            expected = self.shape_text((c.channels, c.width), first=True, second="in_features")
            if chain.result.of_rows:
                expected = f"{{{times(chain.number_of_parts, 'channels')}, in_features}}"
            op.checks.append(f'args.matrix("{c.weight}", {arg(c.weight)}, dtypes.activation, {expected});')
        self.check_rows(op)
        for name, role, shape in self.sources():
            op.checks.append(self.read_input(name, role, shape))
        for name, shape in self.masks():
            op.checks.append(self.read_input(name, "mask", shape))
        op.checks += [read(tensor.name, self.dtype_text(tensor), "{rows}") for tensor in self.targets()]
        written = self._written()
        for buffer in self.buffers():
            if buffer.name in written:
                expected = f"{self.dtype_text(buffer)}, {self.sizes_text(buffer)}"
                op.checks.append(f'args.buffer("{buffer.name}", {arg(buffer.name)}, {expected});')
            else:
                op.checks.append(self.read_input(buffer.name, "parameter", (chain.channels,)))
        op.checks += [self.read_input(t.name, t.role, (chain.channels,)) for t in self.of_ranks()]
        op.checks += [read(seed.name, self.dtype_text(seed), self.sizes_text(seed)) for seed in self.seeds()]
        self.check_samples(op)
        self.check_groups(op)

    def _forward_body(self, op: Op, program: Program) -> None:
        chain = self.chain
        if chain.contraction:
            c = chain.contraction
            bias = self._library_bias()
            operand, weight = arg(c.operand), arg(c.weight)
            if self.plan.has_precisions:
                op.allocations.append(self.products())
                product = (
                    f"products.forward({operand}, {weight}, {bias or 'std::nullopt'}, operand_pieces, weight_pieces)"
                )
                if self.plan.in_epilogue(program):
                    op.allocations.append(
                        f"const bool in_epilogue = products.are_split() && {op.symbol}_takes_product(&call);"
                    )
                    empty = f"glue::empty({op.like}, ScalarType::Float, {{rows, channels}})"
                    product = f"in_epilogue ? {empty} : {product}"
                    parts = f"{operand}, {weight}, operand_pieces, weight_pieces, {out(c.result)}"
                    op.in_epilogue.append(f"const glue::ProductCall product = products.forward_call({parts});")
            elif bias:
                product = f"glue::linear({operand}, {weight}, {bias})"
            else:
                product = f"glue::mm({operand}, glue::transposed({weight}))"
            op.allocations.append(f"const Tensor {out(c.result)} = {product};")
        returned = {t.name: t for t in program.outputs if t.name not in chain.buffers}
        for tensor in returned.values():
            shape = OUTER if tensor.name in program.outer else self.sizes_text(tensor)
            made = f"glue::empty({op.like}, {self.dtype_text(tensor)}, {shape})"
            op.allocations.append(f"const Tensor {out(tensor.name)} = {made};")
        names = list(returned)
        if self.variant.needs_source and chain.contraction:
            names.insert(len(self.variant.results), chain.contraction.result)
        op.returns = names
        op.launched = self.launched(program, {chain.contraction.result} if chain.contraction else set())
        op.results = [f"return {{{', '.join(out(name) for name in names)}}};"]
        self.declare_bias(op, program)

    def _library_bias(self) -> str:
        """The bias that the library adds: in 16-bit dtypes only."""
        bias = next((p.name for p in self.chain.parameters.values() if p.in_product), None)
        return f"bias_in_product ? OptionalTensor({spell(bias, 'in')}) : std::nullopt" if bias else ""
