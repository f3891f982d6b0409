"""The torch ops of a plan: forward and backward of each variant."""

from __future__ import annotations

from fusegen.plan.plan import Plan
from fusegen.render.backward_op import BackwardOp
from fusegen.render.forward_op import ForwardOp
from fusegen.render.op import Op
from fusegen.render.variant_ops import VariantOps


class OpRenderer(VariantOps):
    """Renders the ops of one variant."""

    def forward(self) -> Op:
        return ForwardOp(self.plan, self.variant).op()

    def backward(self) -> Op:
        return BackwardOp(self.plan, self.variant).op()


def ops(plan: Plan) -> list[Op]:
    """Every op of a plan: forward and backward of each variant."""
    return [op for variant in plan.variants for r in (OpRenderer(plan, variant),) for op in (r.forward(), r.backward())]
