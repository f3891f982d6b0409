"""A plan as text for people."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from fusegen.ops.step import WIDTH, Step
from fusegen.plan.plan import Plan
from fusegen.plan.summary import is_built, is_read, summary
from fusegen.plan.tuning import Architecture, Measurement, Range, ranges


def report(plan: Plan) -> str:
    """What `fusegen plan` prints: the chain, schedules, kernels, bytes, the floor, and why."""
    data = summary(plan)
    sizes = ", ".join(f"{name} {size}" for name, size in data["typical"].items())
    lines = [f"{data['name']} at {sizes}" if sizes else data["name"], ""]
    lines += ["chain", *(f"  {_step(step)}" for step in plan.spec.chain), ""]
    if data["contraction"]:
        c = data["contraction"]
        lines += [f"contraction  {c['name']}: {c['in_features']} -> {c['out_features']} by {c['by']}"]
        lines += [f"             {line}" for line in _bias(plan, c)] + [""]
    if "convolution" in data:
        lines += [*_convolution(plan, data["convolution"]), ""]
    for variant in data["variants"]:
        saved = [*variant["saved"], *(f"its input {name}" for name in variant["inputs_saved"])]
        lines += [f"{variant['name']}: saves {_enumeration(saved) or 'nothing'} for the backward pass"]
        for program in variant["programs"]:
            lines += ["", *_program(plan, program)]
        lines.append("")
    lines += _modes(plan)
    for architecture in plan.tuning:
        lines += ["", *_architecture(plan, architecture)]
    return "\n".join(lines)


def _step(step: Step) -> str:
    """The op, and what the spec says of it that no default says."""
    given = step.model_dump(mode="json", exclude_defaults=True)
    op = given.pop("op")
    fields = ", ".join(f"{key}: {_value(value)}" for key, value in given.items())
    return f"{op} ({fields})" if fields else op


def _value(value: object) -> str:
    """As YAML has it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, list) else str(value)


def _bias(plan: Plan, contraction: dict[str, Any]) -> list[str]:
    """Who adds the bias, if there is one."""
    if not contraction["bias"]:
        return []
    narrow = {WIDTH[mode.roles["activation"]] == 2 for mode in plan.modes if is_built(mode)}
    library, kernels = "adds the bias before it rounds", "the kernels add the bias"
    if narrow == {True, False}:
        return [f"in 16 bits that {library}; in float32 {kernels}"]
    return [f"that {library}" if narrow == {True} else kernels]


def _convolution(plan: Plan, c: dict[str, Any]) -> list[str]:
    """What makes it, in which memory format, and why."""
    lines = [f"convolution  {c['name']}: {c['in_channels']} -> {c['out_channels']} by {c['by']}, {c['rows']} rows"]
    reason = textwrap.wrap(f"in {c['memory_format']}: {c['reason']}", 100)
    lines += [f"             {line}" for line in reason]
    return [*lines, "             the kernels add the bias"] if c["bias"] else lines


def _enumeration(words: Sequence[str]) -> str:
    return " and ".join([*([", ".join(words[:-1])] if words[1:] else []), *words[-1:]])


def _modes(plan: Plan) -> list[str]:
    """The dtypes of what there is."""
    chain = plan.chain
    roles = {"activation": "activations"}
    if chain.parameters or chain.buffers or chain.has_anchor:
        roles["parameter"] = "parameters"
    roles |= {role: role for role in plan.modes[0].roles if role.startswith("input ")}
    roles["output"] = "result"
    lines = [f"dtypes of {_enumeration(list(roles.values()))}:"]
    modes = [mode for mode in plan.modes if is_built(mode)]
    return lines + [f"  {mode.name}: {', '.join(mode.roles[role] for role in roles)}" for mode in modes]


def _architecture(plan: Plan, architecture: Architecture) -> list[str]:
    versions = f"torch {architecture.torch}, CUDA {architecture.cuda}"
    lines = [f"launch shapes on {architecture.target}, measured on {architecture.gpu} ({versions}):"]
    for program in plan.programs:
        for dtype in plan.spec.dtypes:
            measurements = architecture.of(program.name, dtype)
            found, least = ranges(measurements), 0
            for each in found:
                rest = "beyond that" if len(found) > 1 else "all rows"
                rows = rest if each.most_rows is None else f"up to {each.most_rows} rows"
                lines.append(f"  {program.name}, {dtype}, {rows}: {each.shapes}{_ran(measurements, least, each)}")
                least = each.most_rows or least
    return lines


def _ran(measurements: Sequence[Measurement], least: int, range_: Range) -> str:
    """The schedules that launchers ran at the sizes that were measured in a range, which begins after `least` rows."""
    inside = [m for m in measurements if m.rows > least and m.rows <= (range_.most_rows or m.rows)]
    found = [f"{m.ran} at {m.rows} rows" for m in inside if m.ran is not None]
    return f"; ran {', '.join(found)}" if found else ""


def _program(plan: Plan, program: dict[str, Any]) -> list[str]:
    floor = program["floor_bytes"]
    dtype = plan.modes[0].name
    bandwidth = plan.device.bandwidth
    time = floor / (bandwidth * 1e9) * 1e6
    shown = f"{time:.1f}" if time >= 1 else f"{time:.2g}"
    lines = [
        f"  {program['name']}",
        f"    floor {_size(floor)} in {dtype}: {shown} us at {bandwidth:.0f} GB/s ({plan.device.name})",
        f"    reads  {', '.join(_read(plan, name) for name in program['reads'])}",
        f"    writes {', '.join(program['writes'])}",
    ]
    lines += [f"    note   {reason}" for reason in program["reasons"]]
    for schedule in program["schedules"]:
        share = schedule["bytes"] / floor
        lines.append(f"    {schedule['kind']}: {_size(schedule['bytes'])}, {share:.2f} times the floor")
        lines.append(f"      because {schedule['reason']}")
        lines += [f"      {kernel['name']}: {kernel['purpose']}" for kernel in schedule["kernels"]]
    return lines


def _read(plan: Plan, name: str) -> str:
    """An input of the kernels, with where it is one."""
    tensor = next(t for program in plan.programs for t in program.inputs if t.name == name)
    modes = [mode for mode in plan.modes if is_built(mode)]
    return name if all(is_read(mode, tensor) for mode in modes) else f"{name} (in float32)"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
