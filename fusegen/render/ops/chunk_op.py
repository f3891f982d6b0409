"""The op of a loss that is made some rows at a time: the product, losses and gradients of one chunk after another."""

from __future__ import annotations

from fusegen.plan.programs.model import Program
from fusegen.render.ops.backward_op import BackwardOp
from fusegen.render.ops.forward_op import ForwardOp
from fusegen.render.ops.op import Field, Op, role_text
from fusegen.render.text.identifiers import identifier


class ChunkOp:
    """Renders it: the arguments of the forward op and its result, and the gradients of the backward op."""

    def __init__(self, forward: ForwardOp, backward: BackwardOp, program: Program) -> None:
        self.forward, self.backward, self.program = forward, backward, program

    def op(self) -> Op:
        forward, program, variant = self.forward, self.program, self.forward.variant
        op = forward.start(program, "kList")
        op.is_chunked = True
        op.fields += forward.tensors(program)
        op.fields.append(forward.read(program, variant.result_gradient, "accumulator", ", kRows, 1"))
        forward.add_numbers(op, program, forward.constants)
        op.fields.append(Field("_chunk", "size", "glue::kChunk"))
        forward.add_needs(op, forward.needs())
        if forward.plan.has_precisions:
            op.traits.append("split_by(&glue::pieces_by_rows)")
        (result,) = (tensor for tensor in program.outputs if tensor.name == variant.result)
        sizes = forward.tensor_shape(result)
        text = f"FUSEGEN_RESULT({identifier(result.name, 'arg')}, {role_text(result.role)}{sizes})"
        op.fields.append(Field(result.name, "result", text))
        product = variant.chain.contraction
        assert product is not None
        op.fields.append(Field(product.result, "", f"FUSEGEN_HIDDEN_PRODUCT({identifier(product.result, 'arg')})"))
        op.fields += self.backward.gradients(program, op.needs)
        return op
