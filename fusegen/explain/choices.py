"""What a chain's launchers would run at a size, as kernels say that are compiled for the CPU."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fusegen.emulate import compile_kernels
from fusegen.errors import Diagnostic, SpecError
from fusegen.explain.times import capability, is_worth_splitting, product_sizes
from fusegen.plan.launches.devices import DEVICES, Device, fastest
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs import modes
from fusegen.plan.programs.epilogue import EPILOGUE, TARGET, is_split, why_after_product
from fusegen.plan.programs.model import Mode, Program, Variant
from fusegen.plan.sizes.bytes import samples_of
from fusegen.plan.sizes.chain_sizes import Sizes, sizes, typical, with_rows
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.runtime.choice import Choice, Considered, choice
from fusegen.runtime.launchers import Call, Launcher
from fusegen.spec.gpu_names import suggestion
from fusegen.tune.launchers import EmulatedLaunchers


@dataclass(frozen=True)
class Question:
    """A size and a dtype; None: the typical size, the spec's first dtype."""

    rows: int | None = None
    channels: int | None = None
    groups: int | None = None
    dtype: str | None = None


def choices(
    plan: Plan, device: Device, mode: Mode, size: Sizes, cache: Path | None = None
) -> Iterator[tuple[Program, Choice, Choice | None]]:
    """The choice of each program on a GPU, and that for contiguous tensors behind a convolution, of kernels that are
    compiled for the CPU. cache: a directory for compiled kernels, if they are to be used again.

    Raises EmulationBuildError without g++.
    """
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write_files(render_all([module_of(plan)]), root)
        source = root / plan.spec.name / "kernels.cu"
        major, minor = capability(device)
        defines = [f"FUSEGEN_EMULATED_CAPABILITY={10 * major + minor}"]
        library = compile_kernels(
            source, cache=cache or root, defines=defines, modes=[mode.index], checked=False, optimised=False
        )
        launchers = EmulatedLaunchers(library)
        for variant in plan.variants:
            for program in (variant.forward, variant.backward):
                samples = samples_of(plan, program, size.symbols)
                call = Call(mode.index, size.rows, size.channels, size.groups(program), samples=samples)
                symbol = Launcher(plan, program).symbol
                made = choice(launchers.explain(symbol, call))
                if program is variant.forward and is_split(plan.spec) and mode.roles["activation"] == "float32":
                    why = why_not_in_epilogue(device, variant, size)
                    made = _with_epilogue(why, symbol, made, launchers, call)
                tiles = None
                if program.contiguous_layout:
                    positions = math.prod(size.made[2:])
                    tiles = choice(launchers.explain(symbol, replace(call, positions=positions)))
                yield program, made, tiles


def why_not_in_epilogue(device: Device, variant: Variant, size: Sizes) -> str | None:
    """Why a forward program of float32 does not run in the epilogue of its product; None if it does. For a plan whose
    product is our own kernel's unless a module is told otherwise."""
    why = why_after_product(variant.forward)
    if why is None and device.target.rstrip("a") != TARGET:
        why = f"{device.name} is not of {TARGET}"
    training = variant.name != "eval"
    if why is None and not is_worth_splitting(device, product_sizes(size), gradients=training):
        why = "modules leave a product of this size to the library: splitting its operands would take longer"
    return why


def _with_epilogue(why: str | None, symbol: str, after: Choice, launchers: EmulatedLaunchers, call: Call) -> Choice:
    """What a forward program runs where its product is our own kernel's. why: it does not run in the epilogue of that.
    symbol: of its launcher. after: what it runs after the product."""
    if why is not None:
        return Choice((Considered(EPILOGUE, False, why, None), *after.considered), after.launches)
    made = choice(launchers.explain(f"{symbol}_product", call))
    return made if made.schedule else Choice((*made.considered, *after.considered), after.launches)


def mode_of(plan: Plan, dtype: str | None) -> Mode:
    """The mode of a dtype, by its name or its short name; None: the first. Raises SpecError for one that the spec
    lacks."""
    wanted = plan.modes[0].roles["activation"] if dtype is None else dtype
    wanted = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(wanted, wanted)
    found = modes.mode_of(plan.modes, wanted) if wanted in plan.spec.dtypes else None
    if found is not None:
        return found
    message = f"{plan.spec.name} has no dtype '{wanted}'"
    raise SpecError([Diagnostic("FG211", message, hint=f"it has: {', '.join(plan.spec.dtypes)}")])


def device_of(plan: Plan, target: str | None) -> Device:
    """The GPU of one of the spec's targets; None: the fastest one. Raises SpecError for a target that the spec
    lacks."""
    if target is None:
        return fastest(plan.spec.targets)
    plain = target.removesuffix("a")
    if plain in (each.removesuffix("a") for each in plan.spec.targets):
        return DEVICES[plain]
    message = f"{plan.spec.name} has no target '{target}'"
    hint = suggestion(target) or f"it has: {', '.join(plan.spec.targets)}"
    raise SpecError([Diagnostic("FG212", message, hint=hint)])


def size_of(plan: Plan, question: Question) -> Sizes:
    """The sizes of a question. Raises SpecError for rows, channels or groups that the spec cannot have, alone or
    together."""
    usual = typical(plan)
    source = usual.source or 1
    wanted = (
        question.rows or usual.rows,
        source,
        question.channels or usual.channels,
        question.groups or usual.free_groups(plan),
    )
    found = with_rows(plan, sizes(plan, *wanted), wanted[0])
    groups = {found.number(count) for count in plan.chain.group_counts}
    possible = (
        ("rows", question.rows, {found.rows}),
        ("channels", question.channels, {found.channels}),
        ("groups", question.groups, groups),
    )
    for what, asked, have in possible:
        if asked is not None and asked not in have:
            hint = f"the nearest is {', '.join(map(str, sorted(have)))}" if have else f"nothing in it has {what}"
            raise SpecError([Diagnostic("FG205", f"{plan.spec.name} cannot have {asked} {what}", hint=hint)])
    return found
