"""A plan as plain data, for plan.json and `fusegen plan`."""

from __future__ import annotations

import math
from typing import Any

from fusegen.chain.model import ROWS, Convolution
from fusegen.ir.axes import Dim
from fusegen.ops.step import WIDTH, Step
from fusegen.plan.model import Kernel, Mode, Program, Schedule, Tensor, Variant
from fusegen.plan.modes import VERIFICATION_DTYPE
from fusegen.plan.plan import Plan
from fusegen.plan.tuning import Architecture, ranges

# How a float32 product is made, unless the module is told otherwise.
_IN_FLOAT32 = {
    "ieee": "aten::mm",
    "fp32_split": "pieces of fp16",
    "bf16": "operands of bf16",
    "fp16": "operands of fp16",
}


def summary(plan: Plan) -> dict[str, Any]:
    """The chain, schedules, kernels, bytes and reasons. Bytes are those of the first mode at the typical sizes."""
    data = {
        "name": plan.spec.name,
        "targets": list(plan.spec.targets),
        "typical": typical(plan),
        "inputs": {tensor.name: list(tensor.shape) for tensor in plan.chain.inputs},
        "chain": [_step(step) for step in plan.spec.chain],
        "modes": [{"name": mode.name, **mode.roles} for mode in plan.modes if is_built(mode)],
        "contraction": _contraction(plan),
        **({"convolution": _convolution(plan, plan.chain.convolution)} if plan.chain.convolution else {}),
        "variants": [_variant(plan, variant) for variant in plan.variants],
    }
    return data | {"tuning": [_architecture(plan, each) for each in plan.tuning]} if plan.tuning else data


def _step(step: Step) -> dict[str, Any]:
    """A step's fields as the spec may have them, defaults among them: another default is another chain."""
    fields = step.model_dump(mode="json")
    there = {key: value for key, value in fields.items() if value is not None or key in step.model_fields_set}
    return {"op": there.pop("op"), **there}


def typical(plan: Plan) -> dict[str, int]:
    """The sizes that planning assumes: of symbols, and numbers of groups."""
    groups = {name: each.typical for name, each in plan.spec.arguments.items() if each.type == "int"}
    return {**plan.spec.dims, **groups}


def is_built(mode: Mode) -> bool:
    """Whether every build has the mode, not only one for verification."""
    return mode.roles["activation"] != VERIFICATION_DTYPE


def is_read(mode: Mode, tensor: Tensor) -> bool:
    """Whether the kernels read an input in this mode: a bias that the library has added is no business of theirs."""
    return not (tensor.in_product and WIDTH[mode.roles["activation"]] == 2)


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
    bias = any(parameter.in_product for parameter in plan.chain.parameters.values())
    ways = {2: "aten::addmm" if bias else "aten::mm", 4: _IN_FLOAT32[plan.spec.chain[0].precision]}
    built = {WIDTH[mode.roles["activation"]] for mode in plan.modes if is_built(mode)}
    used = {width: ways[width] for width in sorted(built)}
    both = len(set(used.values())) == 2
    by = f"{used[2]} in 16 bits, {used[4]} in float32" if both else next(iter(used.values()))
    return {
        "name": c.name,
        "in_features": c.in_features,
        "out_features": c.out_features,
        "bias": bias,
        "by": by,
    }


def _convolution(plan: Plan, c: Convolution) -> dict[str, Any]:
    step = plan.spec.chain[0]
    last = "channels_last_3d" if c.dimensions == 3 else "channels_last"
    return {
        "name": c.name,
        "in_channels": c.in_channels,
        "out_channels": c.out_channels,
        "by": f"torch.nn.functional.{step.op}",
        "bias": step.bias,
        "memory_format": last,
        "reason": "the kernels take the channels as rows of memory, [batch * positions, channels], and the library is "
        "faster so; a result is copied into the format that PyTorch's would have",
        "rows": typical_rows(plan),
    }


def typical_rows(plan: Plan) -> int:
    """The rows at the sizes that planning assumes: behind a convolution, each position of each of the batch."""
    c = plan.chain.convolution
    if c is None:
        return _size(plan, plan.chain.rows)
    batch, _, *positions = (_size(plan, dim) for dim in plan.chain.inputs[0].shape)
    return batch * math.prod(c.positions(positions, lambda each: _size(plan, each)))


def _variant(plan: Plan, variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name or "train and eval",
        "saved": _saved(variant),
        "inputs_saved": _inputs_saved(variant),
        "programs": [_program(plan, variant.forward), _program(plan, variant.backward)],
    }


def _saved(variant: Variant) -> list[str]:
    """What the forward op makes for the backward op."""
    c = variant.chain.contraction
    return [*([c.product] if c and variant.needs_source else []), *(tensor.name for tensor in variant.saved)]


def _inputs_saved(variant: Variant) -> list[str]:
    """The module's inputs that the backward op reads."""
    c = variant.chain.contraction
    read = {tensor.name for tensor in variant.backward.inputs} | ({c.source} if c else set())
    if variant.chain.convolution:
        read.add(variant.chain.convolution.source)  # by PyTorch's own node
    return [tensor.name for tensor in variant.chain.inputs if tensor.name in read]


def _program(plan: Plan, program: Program) -> dict[str, Any]:
    mode = plan.modes[0]
    read = [tensor for tensor in program.inputs if any(is_read(each, tensor) for each in plan.modes if is_built(each))]
    floor = sum(_bytes(plan, mode, tensor) for tensor in (*read, *program.outputs))
    return {
        "name": program.name,
        "floor_bytes": floor,
        "reads": [tensor.name for tensor in read],
        "writes": [tensor.name for tensor in program.outputs],
        "reasons": list(program.reasons),
        "schedules": [_schedule(plan, mode, program, schedule) for schedule in program.schedules],
    }


def _schedule(plan: Plan, mode: Mode, program: Program, schedule: Schedule) -> dict[str, Any]:
    kernels = [*schedule.kernels, *program.scalar_reductions]
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
    if not is_read(mode, tensor):
        return 0
    width = {"accumulator": 4, "count": 8}.get(tensor.role) or WIDTH[mode.roles[tensor.role]]
    counts = (tensor.axes.count("N", plan.chain.rows), tensor.axes.count("C", plan.chain.channels))
    return math.prod(_size(plan, count) for count in counts) * width


def _size(plan: Plan, dim: Dim) -> int:
    if isinstance(dim, int):
        return dim
    if dim == ROWS:
        return typical_rows(plan)
    return plan.spec.dims[dim] if dim in plan.spec.dims else plan.spec.arguments[dim].typical
