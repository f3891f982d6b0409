"""The backward op of a variant: the kernels, then the contraction's two products."""

from __future__ import annotations

from collections.abc import Iterator

from fusegen.plan.programs.model import Program, Tensor
from fusegen.render.ops.op import Field, Op, dtype_field, role_text
from fusegen.render.ops.variant_ops import VariantOps
from fusegen.render.text.identifiers import identifier


class BackwardOp(VariantOps):
    """Renders it."""

    def op(self) -> Op:
        program = self.variant.backward
        op = self.start(program, "kList")
        op.fields += self._tensors(program)
        self.add_images(op, of_gradient=True)
        self.add_numbers(op, program, program.constants)
        self.add_needs(op, self.needs())
        op.fields += self.gradients(program, op.needs)
        if self.variant.overwrites_product and self.chain.contraction:
            op.overwritten = self.chain.contraction.result
        return op

    def backward_inputs(self) -> list[Tensor]:
        """What the backward op takes besides the results' gradients and the contraction's operands."""
        return [t for t in self.variant.backward.given if t.name not in self.variant.result_gradients]

    def _tensors(self, program: Program) -> Iterator[Field]:
        chain = self.chain
        whole = (chain.rows, chain.channels)
        roles = [("output", chain.result.of_rows)]
        roles += [(each.tensor.role, not each.tensor.is_full) for each in self.variant.further]
        for index, (name, (role, of_rows)) in enumerate(zip(self.variant.result_gradients, roles, strict=True)):
            if of_rows:
                yield self.read(program, name, role, ", kRows, 1")
            elif not index and chain.result.pool:
                width = self.learnt_shape(("channels", chain.channels))
                yield self.read(program, name, role, f", kWindows{width}")
            elif not index and chain.result.of_samples:
                yield self.read(program, name, role, ", kSamples, kChannels")
            elif index or self.variant.has_contiguous_layout:
                yield self.given(program, name, role, whole)
            else:
                yield self.read(program, name, role, self.rows_and_channels(chain.channels))
        if c := chain.contraction:
            for name in (c.operand, c.weight):
                yield Field(name, "tensor", f'glue::late_operand("{name}")', is_optional=True)
        shapes = self.shapes()
        for tensor in self.backward_inputs():
            shape = shapes.get(tensor.name)
            if shape is None and tensor.is_full and tensor.name in self.variant.results:
                shape = whole
            if tensor.role == "index":
                yield self.read(program, tensor.name, tensor.role, ", kRows")
            elif shape is None:
                yield self.read(program, tensor.name, tensor.role, self.tensor_shape(tensor))
            else:
                yield self.given(program, tensor.name, tensor.role, shape)

    def gradients(self, program: Program, needs: list[str]) -> list[Field]:
        """In the order of what they are the gradients of."""
        place = {name: index for index, name in enumerate(needs)}
        gradients = (tensor for tensor in program.made if tensor.gradient_of)
        made = sorted(gradients, key=lambda tensor: place.get(tensor.gradient_of, -1))
        return [self._gradient(tensor, place.get(tensor.gradient_of)) for tensor in made]

    def _gradient(self, tensor: Tensor, place: int | None) -> Field:
        """place: that of its tensor in `needs`; None for the gradient of the product."""
        member, name = identifier(tensor.name, "arg"), tensor.gradient_of
        reach = self.chain.compact.get(name)
        shapes = {each: shape for each, _, shape in self.sources() if each not in self.chain.compact}
        shape = self.given_shape(name, shapes[name]) if name in shapes else self.tensor_shape(tensor)
        role = f"{role_text(tensor.role)}{shape}"
        if place is None:
            text = f"FUSEGEN_PRODUCT_GRADIENT({member}, {role})"
            if tensor.alias_of is not None:
                text += f'.same_as("{tensor.alias_of.name}")'
            return Field(tensor.name, "", text)
        text = f"FUSEGEN_GRADIENT({member}, {place}, {role})"
        if tensor.samples:
            text += ".sum_of_samples()"
        elif reach is not None:
            rows, again = self.size_text(f"_{name}_rows"), "true" if reach.rows == "last" else "false"
            text += f".summed({{&glue::sum_of_rows, {dtype_field(f'input {name}')}, {rows}, /*again=*/{again}}})"
        return Field(tensor.name, "result", text)
