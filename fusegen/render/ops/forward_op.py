"""The forward op of a variant: the contraction, then the kernels."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.ir.multiples import times
from fusegen.plan.programs.model import Program, Tensor
from fusegen.render.ops.op import IMAGE_SHAPE, Field, Op, role_text
from fusegen.render.ops.variant_ops import VariantOps
from fusegen.render.text.identifiers import identifier


class ForwardOp(VariantOps):
    """Renders it."""

    def op(self) -> Op:
        program = self.variant.forward
        op = self.start(program, "kTuple")
        op.fields += self.tensors(program)
        self.add_images(op, of_gradient=False)
        self.add_numbers(op, program, self.constants)
        op.fields += self._results(program)
        if self.chain.contraction and self.plan.in_epilogue(program):
            op.traits.append(f"FUSEGEN_IN_EPILOGUE({op.name})")
        return op

    def tensors(self, program: Program) -> Iterator[Field]:
        """What kernels read, and the operands of the product."""
        chain = self.chain
        parts = chain.number_of_parts
        if c := chain.contraction:
            sizes = self.learnt_shape(("rows", chain.rows), ("in_features", c.width))
            yield Field(c.operand, "tensor", f'glue::operand("{c.operand}"{sizes})')
            sizes = self.learnt_shape((times(parts, "channels"), c.channels), ("in_features", "in_features"))
            yield Field(c.weight, "tensor", f'glue::operand("{c.weight}"{sizes})')
        for index, (name, role, shape) in enumerate(self.sources()):
            if index or c or self.variant.has_contiguous_layout:
                yield self.given(program, name, role, shape)
            else:
                yield self.read(program, name, role, self.rows_and_channels(chain.source_channels, parts))
        for name, shape in self.masks():
            yield self.given(program, name, "mask", shape)
        for target in self.targets():
            yield self.read(program, target.name, target.role, ", kRows")
        written = {tensor.name for tensor in program.outputs}
        for buffer in self.buffers():
            sizes = self.tensor_shape(buffer)
            if buffer.name in written:
                text = f"FUSEGEN_UPDATE({identifier(buffer.name, 'arg')}, {role_text(buffer.role)}{sizes})"
                yield Field(buffer.name, "tensor", text, is_optional=True)
            else:
                yield self.given(program, buffer.name, "parameter", (chain.channels,), buffer.optional)
        for tensor in self.of_ranks():
            yield self.given(program, tensor.name, tensor.role, (chain.channels,))
        for seed in self.seeds():
            yield self.read(program, seed.name, seed.role, self.tensor_shape(seed))

    def _results(self, program: Program) -> list[Field]:
        found = []
        for tensor in (each for each in program.outputs if each.name not in self.chain.buffers):
            found.append(self.result(program, tensor))
        if c := self.chain.contraction:
            use, kind = ("PRODUCT", "result") if self.variant.needs_source else ("HIDDEN_PRODUCT", "")
            text = f"FUSEGEN_{use}({identifier(c.result, 'arg')})"
            found.insert(len(self.variant.results), Field(c.result, kind, text))
        return found

    def result(self, program: Program, tensor: Tensor) -> Field:
        """What a program stores, and the op returns."""
        shape = f", {IMAGE_SHAPE}" if tensor.name in program.contiguous_layout else self.tensor_shape(tensor)
        text = f"FUSEGEN_RESULT({identifier(tensor.name, 'arg')}, {role_text(tensor.role)}{shape})"
        return Field(tensor.name, "result", text)
