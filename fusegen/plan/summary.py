"""A plan as plain data, for plan.json and `fusegen plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusegen.chain.anchors import Convolution
from fusegen.ops.step import WIDTH, Step
from fusegen.plan.launches.tuning import Architecture, ranges
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode, Program, Schedule, Variant
from fusegen.plan.sizes.bytes import is_built, kernel_bytes, positions_of, program_bytes, read_of, typical_symbols

# How a float32 product is made, unless the module is told otherwise.
_IN_FLOAT32 = {
    "ieee": "aten::mm",
    "fp32_split": "pieces of fp16",
    "bf16": "operands of bf16",
    "fp16": "operands of fp16",
}
BY_ROWS = "cuBLASLt, by one algorithm for any number of rows"


def summary(plan: Plan, mode: Mode | None = None, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """The chain, schedules, kernels, bytes and reasons. mode, sizes: of the bytes; without them the first mode, and
    the typical sizes."""
    mode = mode or plan.modes[0]
    sizes = typical_symbols(plan.spec) if sizes is None else sizes
    data = {
        "name": plan.spec.name,
        "targets": list(plan.spec.targets),
        "typical": typical_symbols(plan.spec),
        "inputs": {tensor.name: list(tensor.shape) for tensor in plan.chain.inputs},
        "chain": [step_data(step) for step in plan.spec.chain],
        "modes": [{"name": mode.name, **mode.roles} for mode in plan.modes if is_built(mode)],
        **({"without_rewrites": list(plan.spec.without_rewrites)} if plan.spec.without_rewrites else {}),
        "contraction": _contraction(plan),
        **({"convolution": _convolution(plan, sizes, plan.chain.convolution)} if plan.chain.convolution else {}),
        "variants": [_variant(plan, mode, sizes, variant) for variant in plan.variants],
    }
    if plan.sync_batch_norm:
        data["over_ranks"] = {"programs": [_program(plan, mode, sizes, each) for each in plan.sync_batch_norm.programs]}
    return data | {"tuning": tuning_data(plan)} if plan.tuning else data


def tuning_data(plan: Plan) -> list[dict[str, Any]]:
    """The tunings of a plan, by architecture."""
    return [_architecture(plan, each) for each in plan.tuning]


def step_data(step: Step) -> dict[str, Any]:
    """A step's fields as the spec may have them, defaults among them: another default is another chain."""
    fields = step.model_dump(mode="json", by_alias=True)
    there = {key: value for key, value in fields.items() if value is not None or key in step.model_fields_set}
    return {"op": there.pop("op"), **there}


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
    if b := plan.chain.batched:
        ends = {"in_features": b.width, "out_features": b.channels}
        return {"name": plan.spec.chain[0].op, **ends, "bias": False, "by": "torch.matmul"}
    if c is None:
        return None
    built = {WIDTH[mode.roles["activation"]] for mode in plan.modes if is_built(mode)}
    used = {width: made_by(plan, width) for width in sorted(built)}
    both = len(set(used.values())) == 2
    by = f"{used[2]} in 16 bits, {used[4]} in float32" if both else next(iter(used.values()))
    return {
        "name": c.name,
        "in_features": c.width,
        "out_features": c.channels,
        "bias": has_bias(plan),
        "by": by,
    }


def _convolution(plan: Plan, sizes: Mapping[str, int], c: Convolution) -> dict[str, Any]:
    step = plan.spec.chain[0]
    return {
        "name": c.name,
        "in_channels": c.width,
        "out_channels": c.channels,
        "by": f"torch.nn.functional.{step.op}",
        "bias": step.bias,
        "memory_format": "channels_last_3d" if c.dimensions == 3 else "channels_last",
        "reason": "the kernels take the channels as rows of memory, [batch * positions, channels], and the library is "
        "faster so; a contiguous input is copied into that format",
        "rows": positions_of(plan, sizes),
    }


def has_bias(plan: Plan) -> bool:
    """Whether the linear layer that the chain begins with has a bias."""
    return any(parameter.in_product for parameter in plan.chain.parameters.values())


def made_by(plan: Plan, width: int) -> str:
    """What makes the forward product of operands of so many bytes."""
    precision = plan.spec.chain[0].precision if width == 4 else "ieee"
    if plan.spec.invariant and precision == "ieee":
        return BY_ROWS
    if width == 4:
        return _IN_FLOAT32[precision]
    return "aten::addmm" if has_bias(plan) else "aten::mm"


def _variant(plan: Plan, mode: Mode, sizes: Mapping[str, int], variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name or "train and eval",
        "saved": _saved(variant),
        "inputs_saved": _inputs_saved(variant),
        "programs": [_program(plan, mode, sizes, each) for each in (variant.forward, variant.backward)],
    }


def _saved(variant: Variant) -> list[str]:
    """What the forward op makes for the backward op."""
    anchor = variant.chain.anchor
    read = {tensor.name for tensor in variant.backward.inputs}
    results = [name for name in variant.results if name in read]
    return [
        *([anchor.result] if anchor and variant.needs_source else []),
        *results,
        *(tensor.name for tensor in variant.saved),
    ]


def _inputs_saved(variant: Variant) -> list[str]:
    """The module's inputs that the backward op reads, or PyTorch's own node of the anchor."""
    anchor = variant.chain.anchor
    read = {*(tensor.name for tensor in variant.backward.given), *(anchor.inputs if anchor else ())}
    return [tensor.name for tensor in variant.chain.inputs if tensor.name in read]


def _program(plan: Plan, mode: Mode, sizes: Mapping[str, int], program: Program) -> dict[str, Any]:
    return {
        "name": program.name,
        "floor_bytes": program_bytes(plan, mode, sizes, program),
        "reads": [tensor.name for tensor in read_of(plan, program)],
        "writes": [tensor.name for tensor in program.outputs],
        "reasons": list(program.reasons),
        "schedules": [_schedule(plan, mode, sizes, program, schedule) for schedule in program.schedules],
    }


def _schedule(plan: Plan, mode: Mode, sizes: Mapping[str, int], program: Program, schedule: Schedule) -> dict[str, Any]:
    kernels: list[dict[str, Any]] = [
        {
            "name": kernel.name,
            "kind": kernel.kind,
            "purpose": kernel.purpose,
            "bytes": kernel_bytes(plan, mode, sizes, kernel),
        }
        for kernel in (*schedule.kernels, *program.scalar_reductions)
    ]
    moved = sum(kernel["bytes"] for kernel in kernels)
    return {"kind": schedule.kind, "reason": schedule.reason, "bytes": moved, "kernels": kernels}
