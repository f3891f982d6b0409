"""What a generated module says of training over ranks: the operator, and the branch of a call that takes it."""

from __future__ import annotations

from collections.abc import Iterable

from fusegen.plan.modules.plan import Plan
from fusegen.plan.modules.sync_batch_norm import RankPlan
from fusegen.render.ops.functions import as_tuple, repr_double
from fusegen.render.ops.operators import OpRenderer
from fusegen.render.python.call_names import CallNames


def operator_arguments(plan: Plan) -> list[tuple[str, str]]:
    """The arguments of the module's RankOperator besides the package; none where the plan has no such variant."""
    ranks = plan.sync_batch_norm
    if ranks is None:
        return []
    sources = OpRenderer(plan, ranks.variant).sources()
    first = 0 if plan.chain.contraction is None else 1  # the operands of a product stand for its result
    with_rows = [i + first * bool(i) for i, (_, _, shape) in enumerate(sources) if plan.chain.rows in shape]
    bias = next((p.name for p in plan.chain.parameters.values() if p.in_product), None)
    return [
        ("statistics", _names([ranks.norm.mean.name, ranks.norm.variance.name])),
        ("sums", _names([ranks.exchanged.mean_g.name, ranks.exchanged.mean_g_xhat.name])),
        ("early", _names(_early(ranks))),
        ("late", _names(ranks.variant.gradients)),
        ("with_rows", as_tuple([str(index) for index in with_rows])),
        ("linear", str(plan.chain.contraction is not None)),
        *([("bias", repr_double(bias))] if bias else []),
    ]


def differentiated(ranks: RankPlan) -> set[str]:
    """The names of what gets a gradient."""
    return {*_early(ranks), *ranks.variant.gradients}


def refusals(call: CallNames) -> list[str]:
    """Statements that refuse what the ops over ranks do not do."""
    lines = ["if torch.compiler.is_compiling():", "    return None, _support.RANKS_COMPILED"]
    if call.plan.has_precisions:
        # By what all ranks have in common: how many rows decides of the precision of a call.
        lines += [
            'if _activation == torch.float32 and self.fusegen_precision != "ieee":',
            "    return None, _support.RANKS_PRECISION",
        ]
    return lines


def _early(ranks: RankPlan) -> list[str]:
    return [tensor.gradient_of for tensor in ranks.sums.outputs if tensor.gradient_of]


def _names(found: Iterable[str]) -> str:
    return as_tuple([repr_double(name) for name in found])
