"""The op of a loss that is made some rows at a time: the product, losses and gradients of one chunk after another."""

from __future__ import annotations

from fusegen.plan.programs.model import Program
from fusegen.render.ops.backward_op import BackwardOp
from fusegen.render.ops.forward_op import ForwardOp
from fusegen.render.ops.op import Field, Op
from fusegen.render.text.identifiers import identifier


def chunk_op(forward: ForwardOp, backward: BackwardOp, program: Program) -> Op:
    """The arguments of the forward op and its result, and the gradients of the backward op."""
    variant = forward.variant
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
    op.fields.append(forward.result(program, result))
    product = variant.chain.contraction
    assert product is not None
    op.fields.append(Field(product.result, "", f"FUSEGEN_HIDDEN_PRODUCT({identifier(product.result, 'arg')})"))
    op.fields += backward.gradients(program, op.needs)
    return op
