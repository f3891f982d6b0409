"""A plan as plain data, for plan.json and `fusegen plan`."""

from __future__ import annotations

from typing import Any

from fusegen.ir.extent import ALL, Dim
from fusegen.ops.step import WIDTH
from fusegen.plan.model import Kernel, Mode, Program, Schedule, Tensor, Variant
from fusegen.plan.plan import Plan
from fusegen.plan.tuning import Architecture, ranges


def summary(plan: Plan) -> dict[str, Any]:
    """Stages, kernels, bytes and reasons. Bytes are those of the first mode at the typical sizes."""
    data = {
        "name": plan.spec.name,
        "targets": list(plan.spec.targets),
        "typical": {name: size for name, size in plan.spec.dims.items()},
        "modes": [{"name": mode.name, **mode.roles} for mode in plan.modes],
        "contraction": _contraction(plan),
        "variants": [_variant(plan, variant) for variant in plan.variants],
    }
    return data | {"tuning": [_architecture(plan, each) for each in plan.tuning]} if plan.tuning else data


def _architecture(plan: Plan, architecture: Architecture) -> dict[str, Any]:
    """Of each range of rows the fields of Shapes that are not the default; most_rows None: it has no end."""
    return {
        "target": architecture.target,
        "gpu": architecture.gpu,
        "torch": architecture.torch,
        "cuda": architecture.cuda,
        "ranges": [
            {"program": program.name, "dtype": dtype, "most_rows": each.most_rows, **each.shapes.changes}
            for program in plan.programs
            for dtype in plan.spec.dtypes
            for each in ranges(architecture.of(program.name, dtype))
        ],
    }


def _contraction(plan: Plan) -> dict[str, Any] | None:
    c = plan.chain.contraction
    if c is None:
        return None
    return {
        "name": c.name,
        "in_features": c.in_features,
        "out_features": c.out_features,
        "by": "aten::mm, or aten::linear in 16 bits",
    }


def _variant(plan: Plan, variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name or "train and eval",
        "saved": [*(["the contraction's output"] if variant.needs_source else []), *(t.name for t in variant.saved)],
        "programs": [_program(plan, variant.forward), _program(plan, variant.backward)],
    }


def _program(plan: Plan, program: Program) -> dict[str, Any]:
    mode = plan.modes[0]
    floor = sum(_bytes(plan, mode, tensor) for tensor in (*program.inputs, *program.outputs))
    return {
        "name": program.name,
        "floor_bytes": floor,
        "reads": [tensor.name for tensor in program.inputs],
        "writes": [tensor.name for tensor in program.outputs],
        "reasons": list(program.reasons),
        "schedules": [_schedule(plan, mode, program, schedule) for schedule in program.schedules],
    }


def _schedule(plan: Plan, mode: Mode, program: Program, schedule: Schedule) -> dict[str, Any]:
    kernels = [*schedule.kernels, *program.totals]
    return {
        "kind": schedule.kind,
        "reason": schedule.reason,
        "bytes": sum(kernel_bytes(plan, mode, kernel) for kernel in kernels),
        "kernels": [
            {
                "name": kernel.name,
                "kind": kernel.kind,
                "purpose": kernel.purpose,
                "bytes": kernel_bytes(plan, mode, kernel),
            }
            for kernel in kernels
        ],
    }


def kernel_bytes(plan: Plan, mode: Mode, kernel: Kernel) -> int:
    """Bytes that a kernel moves at the typical sizes."""
    return sum(_bytes(plan, mode, tensor) for tensor in (*kernel.reads, *kernel.writes))


def _bytes(plan: Plan, mode: Mode, tensor: Tensor) -> int:
    width = {"accumulator": 4, "count": 8}.get(tensor.role) or WIDTH[mode.roles[tensor.role]]
    extent = tensor.extent
    rows = _size(plan, plan.chain.rows) if extent.rows else 1
    channels = _size(plan, plan.chain.channels) if extent.blocks == ALL else _size(plan, extent.blocks)
    return rows * channels * width


def _size(plan: Plan, dim: Dim) -> int:
    if isinstance(dim, int):
        return dim
    return plan.spec.dims[dim] if dim in plan.spec.dims else plan.spec.arguments[dim].typical
