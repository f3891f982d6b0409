"""The rewrites of `simplify` by their names, which a spec may switch off."""

from __future__ import annotations

from collections.abc import Collection

from fusegen.ir import fold_arithmetic, fold_norms, fold_reductions
from fusegen.ir.rewriter import Rule

REWRITES: dict[str, dict[str, Rule]] = {
    "affine": fold_arithmetic.RULES,
    "moments": fold_reductions.MOMENTS,
    "sums": fold_reductions.SUMS,
    "norms": fold_norms.NORMS,
    "norm_gradients": fold_norms.GRADIENTS,
}
"""The rules of each, by the operation of the nodes that they are for."""

OF_ELEMENTS = ("affine", "norms", "norm_gradients")
"""Those that make forms of values of full size."""


def rules(names: Collection[str], without: Collection[str] = ()) -> dict[str, Rule]:
    """The rules of these rewrites but for those that are switched off."""
    return {op: rule for name in names if name not in without for op, rule in REWRITES[name].items()}


def rewrite_of(op: str) -> str | None:
    """The name of the rewrite that has a rule for an operation."""
    return next((name for name, found in REWRITES.items() if op in found), None)
