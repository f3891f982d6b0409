"""`fusegen tune`: every candidate of every program checked and measured on the GPU at hand; the fastest are kept."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from fusegen.errors import Diagnostic, SpecError, quote
from fusegen.plan.launches.shapes import DEFAULT
from fusegen.plan.launches.tuning import Architecture, Measurement
from fusegen.plan.load import planned_files
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.modes import mode_of
from fusegen.plan.sizes.chain_sizes import Sizes, of_input, sizes, typical, with_rows
from fusegen.plan.tunings.tuning_file import tuning_path
from fusegen.plan.tunings.tuning_space import tuning_space
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.runtime.importing import import_package
from fusegen.tune.agreement import agreeing
from fusegen.tune.chain import Chain
from fusegen.tune.device import Device, cuda_device, require_cuda
from fusegen.tune.file import in_order, merged, write_tuning
from fusegen.tune.measure import fastest, measure
from fusegen.tune.options import Options
from fusegen.tune.tail import TailProgram
from fusegen.tune.text import table

# The typical rows, and what is far from them on either side: between these the default serves, see `ranges`.
_TIMES = (1 / 8, 1, 8)
_SAMPLES, _BUDGET_MS = 25, 400.0
_MIN_WIDTH = 170

Say = Callable[[str], None]


def tune_specs(specs: Sequence[Path], options: Options, device: Device | None = None) -> None:
    """Measures specs and writes a tuning beside each, of a chain of several regions one for each region that has
    kernels. Tables go to stdout, progress to stderr. None: the GPU at hand.

    Raises before anything is measured: SpecError where there is no CUDA device, a spec has none of the dtypes or the
    device is not among its targets. Raises TailError where a candidate's results are not those of the default.
    """
    files = [(plan, spec) for each, spec in zip(planned_files(specs), specs, strict=True) for plan in each.plans]
    plans = [plan for plan, _ in files]
    _refuse_dtypes(plans, options)
    if device is None:
        require_cuda()
        device = cuda_device()
    _refuse_target(plans, device.target)
    stdout, stderr = Console(highlight=False), Console(stderr=True, highlight=False)
    if not stdout.is_terminal:
        stdout.width = _MIN_WIDTH

    def say(line: str) -> None:
        stderr.print(line, markup=False, soft_wrap=True)

    with tempfile.TemporaryDirectory() as directory:
        packages = Path(directory).resolve()
        write_files(render_all(module_of(replace(plan, tuning=())) for plan in plans), packages)
        launchers = device.launchers([plan.spec.name for plan in plans], packages)
        for plan, spec in files:
            package = import_package(packages, plan.spec.name)
            found = []
            for dtype in _dtypes(plan, options):
                mode = mode_of(plan.modes, dtype)
                assert mode is not None
                chain = Chain(plan, mode, package, launchers[plan.spec.name], device.name)
                found += [m for size in _sizes(plan, options) for m in _measured(chain, size, device, say)]
            machine = device.clock.machine
            new = Architecture(device.target, machine.gpu, machine.torch, machine.cuda, in_order(plan, found))
            _write(plan, spec, new, stdout, say)


def _write(plan: Plan, spec: Path, new: Architecture, stdout: Console, say: Say) -> None:
    stdout.print(table(plan.spec.name, new))
    tuning, path = merged(plan, new), tuning_path(spec, plan)
    if tuning == plan.tuning:
        what = spec if path == tuning_path(spec) else f"{spec}, {plan.spec.name}"
        say(f"{what}: nothing to change" + ("" if tuning else ", the default is fastest everywhere"))
        return
    write_tuning(path, tuning)
    say(f"{'wrote' if tuning else 'removed'} {path}; next: fusegen build {spec}")


def _refuse_dtypes(plans: Sequence[Plan], options: Options) -> None:
    for plan in plans:
        if not _dtypes(plan, options):
            message = f"{plan.spec.name} has no dtype {', '.join(map(quote, options.dtypes or ()))}"
            raise SpecError([Diagnostic("FG211", message, hint=f"it has: {', '.join(plan.spec.dtypes)}")])


def _refuse_target(plans: Sequence[Plan], target: str) -> None:
    for plan in plans:
        if target not in {each.rstrip("a") for each in plan.spec.targets}:
            message = f"{plan.spec.name} has no target {target}, which is what there is to measure on"
            raise SpecError([Diagnostic("FG601", message, hint="add it to the spec's targets")])


def _dtypes(plan: Plan, options: Options) -> list[str]:
    there = [dtype for dtype in plan.spec.dtypes if mode_of(plan.modes, dtype) is not None]
    return [dtype for dtype in there if options.dtypes is None or dtype in options.dtypes]


def _sizes(plan: Plan, options: Options) -> list[Sizes]:
    """The rows that are wanted, at the typical channels and groups, as far as the spec leaves them open; each once."""
    usual = typical(plan)
    if usual.given and options.rows is None:  # the other dimensions stay, the batch grows
        batch, *others = usual.given
        return [of_input(plan, (count, *others)) for count in sorted({max(1, int(batch * times)) for times in _TIMES})]
    wanted = options.rows or [max(1, int(usual.rows * times)) for times in _TIMES]
    # The contraction is the vendor library's: its width matters only where it is that of the channels, which rows of
    # channels settle first, and convolutions last.
    width = usual.source or 1 if plan.chain.convolution else 1
    groups = usual.free_groups(plan)
    found = [with_rows(plan, sizes(plan, rows, width, usual.channels, groups), rows) for rows in wanted]
    return list({size.rows: size for size in found}.values())


def _measured(chain: Chain, size: Sizes, device: Device, say: Say) -> list[Measurement]:
    """Every program with a choice at one size; none where the device has not the memory for them."""
    dtype = chain.mode.roles["activation"]
    say(f"{chain.plan.spec.name}, {dtype}, {size.rows}x{size.channels}")
    found = []
    programs = chain.programs(size)
    try:
        with torch.no_grad(), _no_collection():
            for program in programs:
                if len(tuning_space(program.program)) > 1:
                    found.append(_measurement(program, dtype, device))
                del program  # its memory is needed for the next
    except torch.OutOfMemoryError:
        say("  left out: the device has not the memory for it")
        return []
    finally:
        programs.close()
    return found


def _measurement(program: TailProgram, dtype: str, device: Device) -> Measurement:
    """One program, all its candidates in the same rounds, the fastest beside the default in rounds of their own. Raises
    TailError where they disagree."""
    launches = agreeing(program, {shapes: shapes for shapes in tuning_space(program.program)})
    times = measure(device.clock, launches, most=_SAMPLES, budget_ms=_BUDGET_MS)
    best, tail, groups = fastest(times), program.tail, program.program.groups
    if best != DEFAULT:  # of so many one is fast by chance: it has to be so again
        times = measure(device.clock, {each: launches[each] for each in (best, DEFAULT)}, most=_SAMPLES)
        best = fastest(times)
    chosen = program.choice(best)
    return Measurement(
        program.program.name,
        dtype,
        tail.rows,
        tail.channels,
        None if groups is None else tail.sizes.number(groups),
        best,
        round(times[best].median, 2),
        round(times[DEFAULT].median, 2),
        chosen.schedule,
        chosen.launched,
        None if best == DEFAULT else program.choice(DEFAULT).schedule,
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage is collected before and after a measurement, never within."""
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
