"""A plan as text for people."""

from __future__ import annotations

from typing import Any

from fusegen.plan.plan import Plan
from fusegen.plan.summary import summary
from fusegen.plan.tuning import Architecture, ranges


def report(plan: Plan) -> str:
    """What `fusegen plan` prints: stages, kernels, bytes, the floor, and why."""
    data = summary(plan)
    sizes = ", ".join(f"{name} {size}" for name, size in data["typical"].items())
    lines = [f"{data['name']} at {sizes}", ""]
    if data["contraction"]:
        c = data["contraction"]
        lines += [
            f"contraction  {c['name']}: {c['in_features']} -> {c['out_features']} by {c['by']}, the vendor library"
        ]
        lines += ["             in 16 bits it adds the bias before it rounds; in float32 the kernels add it", ""]
    for variant in data["variants"]:
        saved = ", ".join(variant["saved"]) or "nothing"
        lines += [f"{variant['name']}: saves {saved} for the backward pass and recomputes the rest"]
        for program in variant["programs"]:
            lines += ["", *_program(plan, program)]
        lines.append("")
    lines.append("dtypes of activations, parameters and result:")
    for mode in data["modes"]:
        lines.append(f"  {mode['name']}: {mode['activation']}, {mode['parameter']}, {mode['output']}")
    for architecture in plan.tuning:
        lines += ["", *_architecture(plan, architecture)]
    return "\n".join(lines)


def _architecture(plan: Plan, architecture: Architecture) -> list[str]:
    versions = f"torch {architecture.torch}, CUDA {architecture.cuda}"
    lines = [f"launch shapes on {architecture.target}, measured on {architecture.gpu} ({versions}):"]
    for program in plan.programs:
        for dtype in plan.spec.dtypes:
            found = ranges(architecture.of(program.name, dtype))
            for each in found:
                rest = "beyond that" if len(found) > 1 else "all rows"
                rows = rest if each.most_rows is None else f"up to {each.most_rows} rows"
                lines.append(f"  {program.name}, {dtype}, {rows}: {each.shapes}")
    return lines


def _program(plan: Plan, program: dict[str, Any]) -> list[str]:
    floor = program["floor_bytes"]
    dtype = plan.modes[0].name
    bandwidth = plan.device.bandwidth
    time = floor / (bandwidth * 1e9) * 1e6
    lines = [
        f"  {program['name']}",
        f"    floor {floor / 1e6:.1f} MB in {dtype}: {time:.1f} us at {bandwidth:.0f} GB/s ({plan.device.name})",
        f"    reads  {', '.join(program['reads'])}",
        f"    writes {', '.join(program['writes'])}",
    ]
    lines += [f"    note   {reason}" for reason in program["reasons"]]
    for schedule in program["schedules"]:
        share = schedule["bytes"] / floor
        lines.append(f"    {schedule['kind']}: {schedule['bytes'] / 1e6:.1f} MB, {share:.2f} times the floor")
        lines.append(f"      because {schedule['reason']}")
        lines += [f"      {kernel['name']}: {kernel['purpose']}" for kernel in schedule["kernels"]]
    return lines
