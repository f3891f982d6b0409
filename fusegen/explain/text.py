"""`fusegen plan SPEC --rows N`: what runs at one size, in the words of the launchers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fusegen.emulate import compile_kernels
from fusegen.errors import Diagnostic, SpecError
from fusegen.plan.epilogue import EPILOGUE, TARGET, is_split, why_after_product
from fusegen.plan.model import Mode, Program, Variant
from fusegen.plan.plan import Plan
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.runtime.choice import Choice, Considered, Launch, choice
from fusegen.runtime.launchers import Call, Launcher
from fusegen.tune.launchers import EmulatedLaunchers
from fusegen.verify.sizes import Sizes, sizes, typical


@dataclass(frozen=True)
class Question:
    """A size and a dtype; None: the typical size, the spec's first dtype."""

    rows: int | None = None
    channels: int | None = None
    groups: int | None = None
    dtype: str | None = None


def answer(plan: Plan, question: Question, cache: Path | None = None) -> str:
    """What each program of a chain runs at a size, and why. cache: a directory for compiled kernels, if they are to be
    used again. Raises SpecError for a dtype or a size that the spec cannot have, EmulationBuildError without g++."""
    mode, size = _mode(plan, question.dtype), _size(plan, question)
    lines = [f"{plan.spec.name}, {mode.name}, {size} on {plan.device.name}"]
    for program, made in choices(plan, mode, size, cache):
        lines += ["", f"  {program.name}: {made.schedule}"]
        for each in made.considered:
            estimate = "" if each.estimate is None else f" (estimate {each.estimate:.1f})"
            lines.append(f"    {'takes' if each.chosen else 'not  '} {each.schedule}: {each.reason}{estimate}")
        lines += [f"    {_launch(launch)}" for launch in made.launches]
    return "\n".join(lines)


def choices(plan: Plan, mode: Mode, size: Sizes, cache: Path | None = None) -> Iterator[tuple[Program, Choice]]:
    """The choice of each program, of kernels that are compiled for the CPU: as launchers choose on a device that the
    plan is made for."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write_files(render_all([plan]), root)
        source = root / plan.spec.name / "kernels.cu"
        library = compile_kernels(source, cache=cache or root, modes=[mode.index], checked=False)
        launchers = EmulatedLaunchers(library)
        for variant in plan.variants:
            for program in (variant.forward, variant.backward):
                call = Call(mode.index, size.rows, size.channels, size.groups(program))
                made = choice(launchers.explain(Launcher(plan, program).symbol, call))
                if program is variant.forward and is_split(plan.spec) and mode.roles["activation"] == "float32":
                    made = _with_epilogue(plan, variant, made, launchers, call)
                yield program, made


def _with_epilogue(plan: Plan, variant: Variant, after: Choice, launchers: EmulatedLaunchers, call: Call) -> Choice:
    """What a forward program runs where its product is our own kernel's. after: what it runs after the product."""
    why = why_after_product(variant.forward)
    if why is None and plan.device.target.rstrip("a") != TARGET:
        why = f"{plan.device.name} is not of {TARGET}"
    if why is not None:
        return Choice((Considered(EPILOGUE, False, why, None), *after.considered), after.launches)
    made = choice(launchers.explain(f"{Launcher(plan, variant.forward).symbol}_product", call))
    return made if made.schedule else Choice((*made.considered, *after.considered), after.launches)


def _mode(plan: Plan, dtype: str | None) -> Mode:
    wanted = dtype or plan.spec.dtypes[0]
    wanted = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(wanted, wanted)
    for mode in plan.modes:
        if mode.plain and mode.roles["activation"] == wanted and wanted in plan.spec.dtypes:
            return mode
    message = f"{plan.spec.name} has no dtype '{wanted}'"
    raise SpecError([Diagnostic("FG211", message, hint=f"it has: {', '.join(plan.spec.dtypes)}")])


def _size(plan: Plan, question: Question) -> Sizes:
    usual = typical(plan)
    source = usual.source or 1
    wanted = (
        question.rows or usual.rows,
        source,
        question.channels or usual.channels,
        question.groups or usual.free_groups(plan),
    )
    found = sizes(plan, *wanted)
    if plan.chain.convolution:
        # The kernels take any rows, whatever batch and positions they are of.
        found = replace(found, rows=wanted[0], given=(), made=())
    if question.channels is not None and found.channels != question.channels:
        hint = f"the nearest is {found.channels}"
        raise SpecError([Diagnostic("FG211", f"{plan.spec.name} cannot have {question.channels} channels", hint=hint)])
    return found


def _launch(launch: Launch) -> str:
    first, last = launch.passes
    passes = f"pass {first}" if first == last else f"passes {first} to {last}"
    grid, block = ("x".join(map(str, each)) for each in (launch.grid, launch.block))
    cluster = f", clusters of {launch.grid[2]}" if launch.grid[2] > 1 else ""
    return f"{launch.kernel} kernel, {passes}: grid {grid}, block {block}, {launch.shared_bytes} bytes shared{cluster}"
