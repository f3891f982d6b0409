"""What a call's constants and sizes must be for the kernels: Python expressions that give a reason where they are not.

Each op says under which conditions PyTorch refuses its constants (`Step.refused`, `Step.converted`). PyTorch is called
then, and raises its own error at its own moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from fusegen.ir.graph import Node, ancestors
from fusegen.ir.ranges import folded_constants
from fusegen.ops.scalars import scalar_text
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Variant
from fusegen.render.ops.functions import as_tuple

_LEAST_MAXIMUM = 65504.0  # of float16, the largest number that every dtype has


def preconditions(plan: Plan, variant: Variant, numbers: Sequence[str], owners: Mapping[str, str]) -> list[str]:
    """Expressions for a call of one variant, in order: each may rely on those before it.

    numbers: the constants that the op takes, as expressions. owners: by submodule, the variable that holds it.
    """
    found = [f"_support.not_numbers({', '.join(numbers)})"] if numbers else []
    steps = plan.spec.chain
    for step in steps:
        owner = owners.get(getattr(step, "name", None) or "", "self")
        found += [f"_support.refused({condition})" for condition in step.refused(owner, variant.chain.training)]
    converted = [value for step in steps for value in step.converted()]
    beyond = dict.fromkeys(scalar_text(value) for value in converted if isinstance(value, str) or _is_large(value))
    if beyond:
        found.append(f"_support.beyond(_activation, {', '.join(beyond)})")
    if any(node.op == "channel" for node in ancestors(_results(variant))):
        found.append("_support.uncounted(_channels)")
    return found + _far_from_one(variant)


def _results(variant: Variant) -> list[Node]:
    return [tensor.node for program in (variant.forward, variant.backward) for tensor in program.outputs]


def _is_large(value: float) -> bool:
    return math.isfinite(value) and abs(value) > _LEAST_MAXIMUM


def _far_from_one(variant: Variant) -> list[str]:
    """Of the constants that are folded, forward or backward."""
    results = _results(variant)
    folded = folded_constants(results)
    if not folded:
        return []
    divisors = folded & _inverted(results)
    attributes = {name: f"self.{constant.attribute}" for name, constant in variant.chain.constants.items()}
    texts = [as_tuple([attributes[name] for name in sorted(names)]) for names in (folded - divisors, divisors)]
    return [f"_support.far_from_one({', '.join(texts)})"]


def _inverted(results: Iterable[Node]) -> set[str]:
    """The constants that something takes the reciprocal of."""
    inverses = [node for node in ancestors(results) if node.op == "reciprocal"]
    return {str(node.operands[0].attribute) for node in inverses if node.operands[0].op == "scalar"}
