"""The torch ops of a plan: forward and backward of each variant."""

from __future__ import annotations

from fusegen.plan.modules.plan import Plan
from fusegen.render.ops.backward_op import BackwardOp
from fusegen.render.ops.chunk_op import chunk_op
from fusegen.render.ops.forward_op import ForwardOp
from fusegen.render.ops.op import Op
from fusegen.render.ops.rank_ops import rank_ops
from fusegen.render.ops.variant_ops import VariantOps


class OpRenderer(VariantOps):
    """Renders the ops of one variant."""

    def forward(self) -> Op:
        return ForwardOp(self.plan, self.variant).op()

    def backward(self) -> Op:
        return BackwardOp(self.plan, self.variant).op()

    def chunk(self) -> list[Op]:
        """Of a loss that is made some rows at a time."""
        if self.variant.chunk is None:
            return []
        both = ForwardOp(self.plan, self.variant), BackwardOp(self.plan, self.variant)
        return [chunk_op(*both, self.variant.chunk)]


def ops(plan: Plan) -> list[Op]:
    """Every op of a plan: forward and backward of each variant, then those over ranks."""
    renderers = [OpRenderer(plan, variant) for variant in plan.variants]
    found = [op for each in renderers for op in (each.forward(), each.backward(), *each.chunk())]
    return [*found, *(rank_ops(plan, plan.sync_batch_norm).all if plan.sync_batch_norm else ())]
