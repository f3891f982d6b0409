"""The first lines of a standalone file: what it is, which operators it replaces, and why each should be faster."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from fusegen.ir.axes import MATRIX
from fusegen.ops.step import Step
from fusegen.plan.modules.module import ModulePlan
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program
from fusegen.plan.sizes.bytes import bytes_of, typical_symbols
from fusegen.plan.summary import summary
from fusegen.render.cuda import lines_of_steps
from fusegen.standalone.sources import bare

_COLUMNS = 96


def header(planned: ModulePlan) -> list[str]:
    """Lines of comments, without their `#`."""
    spec = planned.spec
    lines = [*textwrap.wrap(spec.about, _COLUMNS), ""]
    lines += textwrap.wrap(
        f"Fused CUDA kernels, forward and backward, written by fusegen from {spec.name}.yaml. This file needs torch >= "
        f"{_oldest(planned)} with CUDA, and what that compiles extensions with: nvcc >= 12.1, a C++17 compiler, ninja. "
        "The kernels are compiled where it is imported first.",
        _COLUMNS,
    )
    if not planned.single:
        lines += ["", "The chain has several regions. Values between them lie in memory."]
    for region in planned.regions:
        if not planned.single:
            lines += ["", f"---- The region {region.name}"]
        if region.plan is None:
            what = "a layer alone" if region.steps[0].anchor else region.why_called
            text = f"It stays the library's, which this file does not claim to beat: {what}."
            lines += ["", *textwrap.wrap(text, _COLUMNS)]
        else:
            lines += ["", *_operators(region.plan), "", *_kernels(region.plan)]
    return lines


def _oldest(planned: ModulePlan) -> str:
    """The first version of torch that has the operators."""
    if any(step.anchor and step.spatial for step in planned.spec.chain):
        return "2.10"
    return "2.2"


def _operators(plan: Plan) -> Iterator[str]:
    """Those that are replaced, each with what that saves."""
    sizes = ", ".join(f"{name} {size}" for name, size in summary(plan)["typical"].items())
    yield from (f"Operators that are replaced, at {sizes or 'any size'}, in {plan.modes[0].name}:", "")
    full, (lines, _) = _full_bytes(plan), lines_of_steps(plan)
    for step, texts in zip(plan.spec.chain, lines, strict=True):
        yield from (f"  {bare(text)}" for text in texts)
        yield from textwrap.wrap(
            _reason(plan, step, full), _COLUMNS, initial_indent="      ", subsequent_indent="      "
        )


def _kernels(plan: Plan) -> Iterator[str]:
    yield from ("Kernels:", "")
    for variant in summary(plan)["variants"]:
        for program, made in zip(variant["programs"], _programs(plan, variant["name"]), strict=True):
            yield from _program(program, made)


def _full_bytes(plan: Plan) -> int:
    """Of a result [rows, channels], in the first dtype configuration."""
    return bytes_of(plan, plan.modes[0], typical_symbols(plan.spec), MATRIX, "activation")


def _reason(plan: Plan, step: Step, full: int) -> str:
    if step.spatial or step.in_batches:
        return "stays the library's, which this file does not claim to beat" + (
            "; its bias is added by the kernels" if getattr(step, "bias", False) else ""
        )
    if step.op == "linear":
        bias = next((p for p in plan.chain.parameters.values() if p.in_product), None)
        text = "stays the library's product, which this file does not claim to beat"
        if plan.has_precisions:
            text = (
                "three products of fp16 pieces on tensor cores, as accurate as one in float32 and faster than that on "
                "GPUs of sm_90; elsewhere, and where it is not worth it, the library's product"
            )
        return text + ("; its bias is added by the kernels, in 16 bits by the product" if bias else "")
    saved = _megabytes(2 * full)
    if step.passes:
        return f"its statistics are taken of elements that are read for the whole chain anyway: saves {saved} forward"
    return f"on elements that are in registers: eager PyTorch reads and writes {saved} for this operator alone, forward"


def _programs(plan: Plan, name: str) -> tuple[Program, Program]:
    variant = next(each for each in plan.variants if each.name == name or not each.name)
    return variant.forward, variant.backward


def _program(data: dict, program: Program) -> list[str]:
    first = data["schedules"][0]
    text = f"{first['kind'].replace('_', '-')} schedule, {first['reason']}: moves {_megabytes(first['bytes'])}"
    text += f", and no less than {_megabytes(data['floor_bytes'])} could be moved"
    lines = textwrap.wrap(
        f"{data['name'].replace('_', ' ')}: {text}", _COLUMNS, initial_indent="  ", subsequent_indent=" " * 6
    )
    for reason in program.reasons:
        lines += textwrap.wrap(reason, _COLUMNS, initial_indent=" " * 6, subsequent_indent=" " * 6)
    others = [schedule["kind"].replace("_", "-") for schedule in data["schedules"][1:]]
    if others:
        lines.append(f"      at other sizes: {', '.join(others)}")
    return lines


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
