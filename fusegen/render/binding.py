"""bindings.cpp: the chain's torch ops."""

from __future__ import annotations

from typing import Any

from fusegen.plan.model import Mode
from fusegen.plan.plan import Plan
from fusegen.render.environment import render
from fusegen.render.launchers_header import copy_symbol, mean_loss_symbol, merge_symbol, namespace
from fusegen.render.layout import tidy
from fusegen.render.op import dtype_field
from fusegen.render.operators import ops
from fusegen.render.types import type_roles

_SCALAR_TYPE = {"float32": "Float", "bfloat16": "BFloat16", "float16": "Half", "float64": "Double"}


def render_bindings(plan: Plan, sources: str) -> str:
    """The text of bindings.cpp. sources: the digest of the C++ sources."""
    text = render(
        "bindings.cpp.j2",
        **ops_context(plan),
        file=plan.spec.file_stem,
        sources=sources,
        bumps=False,
        tiled=any(variant.tiled for variant in plan.variants),
        ranks=merge_symbol(plan.spec.name) if plan.over_ranks else "",
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
        "precisions": plan.has_precisions,
        "copier": copy_symbol(plan),
        "reducer": mean_loss_symbol(plan),
        "roles": [*(dtype_field(role) for role in roles), "accumulator"],
        "modes": mode_rows(plan),
    }


def mode_rows(plan: Plan) -> list[str]:
    """The dtypes of each mode, as the values of the struct `Dtypes`."""
    roles = type_roles(plan.modes[0].roles)
    return [_row(mode, roles) for mode in plan.modes]


def _row(mode: Mode, roles: list[str]) -> str:
    dtypes = [mode.roles[role] for role in roles]
    dtypes.append("float64" if dtypes[0] == "float64" else "float32")
    return ", ".join(f"ScalarType::{_SCALAR_TYPE[dtype]}" for dtype in dtypes)
