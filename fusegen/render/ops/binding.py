"""bindings.cpp: the chain's torch ops."""

from __future__ import annotations

import textwrap
from typing import Any

from fusegen.plan.modules.plan import Plan
from fusegen.render.ops.op import dtype_field
from fusegen.render.ops.operators import ops
from fusegen.render.programs.launchers_header import (
    copy_symbol,
    mean_loss_symbol,
    merge_symbol,
    namespace,
    scale_symbol,
)
from fusegen.render.programs.types import type_roles
from fusegen.render.text.environment import render
from fusegen.render.text.layout import tidy


def render_bindings(plan: Plan) -> str:
    """The text of bindings.cpp."""
    text = render(
        "bindings.cpp.j2",
        **ops_context(plan),
        file=plan.spec.file_stem,
        others=_others(plan),
        ranks=merge_symbol(plan.spec.name) if plan.sync_batch_norm else "",
        quoted_targets=[f'"{target}"' for target in plan.spec.targets],
    )
    return tidy(text)


def ops_context(plan: Plan) -> dict[str, Any]:
    """What the template of the ops needs to know, in a package or in one file."""
    roles = type_roles(plan.modes[0].roles)
    return {
        "name": plan.spec.name,
        "namespace": namespace(plan.spec.name),
        "ops": ops(plan),
        "scaler": scale_symbol(plan),
        "precisions": plan.has_precisions,
        "copier": copy_symbol(plan),
        "reducer": mean_loss_symbol(plan),
        "row_invariant": plan.spec.invariant == "rows",
        "own_roles": own_roles([dtype_field(role) for role in roles[3:]]),
    }


def own_roles(names: list[str]) -> list[str]:
    """The roles of further inputs and results, behind those that each package has, as an enumeration's values."""
    return [f"{name} = glue::kFirstOwnRole" if not index else name for index, name in enumerate(names)]


def _others(plan: Plan) -> list[tuple[str, list[str]]]:
    """The ops that are no program's: their function, and what it takes and returns, as string literals of C++."""
    found = []
    if plan.has_precisions:
        found.append(("split", "(Tensor values) -> Tensor"))
    if copy_symbol(plan):
        found.append(("copy_images", "(Tensor images, int dtype_mode) -> Tensor"))
        found.append(("pad_images", "(Tensor images, int more, int dtype_mode) -> Tensor"))
    if mean_loss_symbol(plan):
        arguments = "Tensor losses, Tensor targets, Tensor? weights, int ignored, int dtype_mode"
        found.append(("mean_loss", f"({arguments}) -> (Tensor, Tensor)"))
    if scale_symbol(plan):
        found.append(("scale", "(Tensor(a!) values, Tensor factor, bool keeps_zeros) -> ()"))
    if plan.sync_batch_norm:
        buffers = "Tensor(a!)? running_mean, Tensor(b!)? running_var, Tensor(c!)? batches"
        arguments = f"Tensor gathered, {buffers}, int dtype_mode, float momentum"
        found.append(("ranks_merge", f"({arguments}) -> (Tensor, Tensor, Tensor)"))
    return [(function, _literals(schema)) for function, schema in found]


def _literals(text: str) -> list[str]:
    """String literals that are this text together, one a line."""
    lines = textwrap.wrap(text, 62, break_on_hyphens=False)
    return [f'"{line}{" " if line is not lines[-1] else ""}"' for line in lines]
