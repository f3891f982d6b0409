"""The words and figures of a report that text, HTML and SVG share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.explain import model
from fusegen.explain.times import LEAST, capability, product_route
from fusegen.ops.step import WIDTH
from fusegen.plan.launches.devices import Device
from fusegen.plan.launches.tuning import Architecture, Measurement, Range, ranges
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Tensor, Variant
from fusegen.plan.sizes.bytes import is_built, is_read
from fusegen.spec.text import flow


def size(count: float) -> str:
    """Bytes, such as 67.1 MB."""
    if abs(count) < 1e3:
        return f"{count:.0f} B"
    if abs(count) < 1e6:
        return f"{count / 1e3:.1f} kB"
    return f"{count / 1e6:.1f} MB" if abs(count) < 1e10 else f"{count / 1e9:.1f} GB"


def time(microseconds: float) -> str:
    """Such as 22.4 us, 2.69 ms."""
    if microseconds < 1000:
        return f"{microseconds:.2g} us" if 0 < microseconds < 1 else f"{microseconds:.1f} us"
    if microseconds >= 1e7:
        return f"{microseconds / 1e6:.1f} s"
    return f"{microseconds / 1000:.2f} ms" if microseconds < 1e4 else f"{microseconds / 1000:.1f} ms"


def enumeration(words: Sequence[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]])


def step(each: Any) -> str:
    """The op, and what the spec says of it that no default says."""
    given = each.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    op = given.pop("op")
    fields = ", ".join(f"{key}: {flow(value)}" for key, value in given.items())
    return f"{op} ({fields})" if fields else op


KERNELS_ADD = "the kernels add the bias"


def bias(plan: Plan, contraction: dict[str, Any]) -> str | None:
    """Who adds the bias, if there is one."""
    if not contraction["bias"]:
        return None
    narrow = {WIDTH[mode.roles["activation"]] == 2 for mode in plan.modes if is_built(mode)}
    library = "adds the bias before it rounds"
    if narrow == {True, False}:
        return f"in 16 bits that {library}; in float32 {KERNELS_ADD}"
    return f"that {library}" if narrow == {True} else KERNELS_ADD


def read(plan: Plan, tensor: Tensor) -> str:
    """An input of the kernels, with where it is one."""
    modes = [mode for mode in plan.modes if is_built(mode)]
    return tensor.name if all(is_read(mode, tensor) for mode in modes) else f"{tensor.name} (in float32)"


WHY_RESULT_SAVED = "a result: the gradient reads it instead of the inputs that it follows from"


def why_saved(variant: Variant, tensor: Tensor) -> str:
    """Why the forward pass stores a tensor."""
    if tensor.node is variant.chain.source:
        return "the gradient reads it; everything between it and the result is computed again"
    if tensor.is_full:
        return "the gradient compares what it has read with the largest or smallest"
    return "a statistic: the backward pass reads it and need not reduce again"


def why_input_saved(variant: Variant, name: str) -> str:
    """Why the backward pass needs an input of the module."""
    contraction = variant.chain.contraction
    if contraction is not None and contraction.source == name:
        return "the weight's gradient is a product with it"
    convolution = variant.chain.convolution
    if convolution is not None and convolution.source == name:
        return "the weight's gradient is a convolution with it"
    batched = variant.chain.batched
    if batched is not None and name in (batched.source, batched.other):
        return "the other operand's gradient is a product with it"
    return "the gradient reads it"


def dtypes(plan: Plan) -> dict[str, dict[str, str]]:
    """For each dtype configuration, by its name, the dtypes of activations, parameters, result and inputs."""
    chain = plan.chain
    roles = {"activation": "activations"}
    if chain.parameters or chain.buffers or chain.anchor is not None:
        roles["parameter"] = "parameters"
    roles |= {role: role for role in plan.modes[0].roles if role.startswith("input ")}
    roles["output"] = "result"
    modes = [mode for mode in plan.modes if is_built(mode)]
    return {mode.name: {label: mode.roles[role] for role, label in roles.items()} for mode in modes}


def tuning(plan: Plan, architecture: Architecture) -> model.Tuning:
    """Launch shapes that replace the launchers' choice near sizes that were measured."""
    versions = f"torch {architecture.torch}, CUDA {architecture.cuda}"
    lines = []
    for program in plan.programs:
        for dtype in plan.spec.dtypes:
            measurements = architecture.of(program.name, dtype)
            found, least = ranges(measurements), 0
            for each in found:
                rest = "beyond that" if len(found) > 1 else "all rows"
                rows = rest if each.most_rows is None else f"up to {each.most_rows} rows"
                lines.append(f"{program.name}, {dtype}, {rows}: {each.shapes}{_ran(measurements, least, each)}")
                least = each.most_rows or least
    measured_on = f"launch shapes on {architecture.target}, measured on {architecture.gpu} ({versions})"
    return model.Tuning(measured_on=measured_on, ranges=tuple(lines))


def _ran(measurements: Sequence[Measurement], least: int, range_: Range) -> str:
    """The schedules that launchers ran at the sizes that were measured in a range, which begins after `least` rows."""
    inside = [m for m in measurements if m.rows > least and m.rows <= (range_.most_rows or m.rows)]
    found = [f"{m.ran} at {m.rows} rows" for m in inside if m.ran is not None]
    return f"; ran {', '.join(found)}" if found else ""


def launch(each: model.Launch) -> str:
    """A launch with its grid and blocks."""
    first, last = each.passes
    passes = f"pass {first}" if first == last else f"passes {first} to {last}"
    grid, block = ("x".join(map(str, extents)) for extents in (each.grid, each.block))
    cluster = f", clusters of {each.grid[2]}" if each.grid[2] > 1 else ""
    return f"{each.kernel} kernel, {passes}: grid {grid}, block {block}, {each.shared_bytes} bytes shared{cluster}"


def device(each: Device) -> model.Device:
    """A GPU, as reports have it."""
    speed = product_route().SPEEDS.get(capability(each))
    return model.Device(
        name=each.name,
        target=each.target,
        bandwidth_gb_s=each.bandwidth,
        float32_tflop_s=speed and round(speed.float32 / 1e6, 1),
        tensor_core_tflop_s=speed and round(speed.tensor_cores / 1e6, 1),
    )


def estimates(plan: Plan, on: Device, *, chosen: bool) -> tuple[str, ...]:
    """How times are estimated."""
    gpu = device(on)
    lines = [
        f"a kernel takes its bytes over {gpu.bandwidth_gb_s:.0f} GB/s, what a copy reaches on {gpu.name}, and at least "
        f"{LEAST} us",
        "eager PyTorch runs one kernel for each operator and direction, which reads each operand and writes each "
        "result once: it takes no less",
        "what is saved of an operator are the values between operators, which fused kernels have in registers or "
        "shared memory; what these kernels move besides counts against it",
        "times are of the GPU: what the host needs to launch comes on top",
    ]
    if plan.chain.contraction is not None and gpu.float32_tflop_s is None:
        lines.append(f"nobody has measured products on {gpu.name}: times are those of what follows the product")
    elif plan.chain.contraction is not None:
        lines.append(
            f"a product takes its operations over the speed on {gpu.target}, {gpu.float32_tflop_s:g} TFLOP/s in "
            f"float32 and {gpu.tensor_core_tflop_s:g} in 16 bits; of few rows it takes its bytes"
        )
    if plan.chain.convolution is not None:
        lines.append(
            "both sides have the convolution, which is left out; eager PyTorch adds its bias in a pass of its own, and "
            "copies between memory formats come on top"
        )
    if getattr(plan.spec.chain[0], "precision", "ieee") == "fp32_split" and gpu.float32_tflop_s is not None:
        lines.append("in fp32_split it is three products of pieces in 16 bits, after splitting the operands")
    if not chosen:
        lines.append("bytes and times are of the first schedule of each program: --rows says what runs")
    return tuple(lines)
