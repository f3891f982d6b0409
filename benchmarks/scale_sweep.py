"""Measures programs at sizes: the schedule that a launcher chooses, and each that can be forced."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import torch
from scale_chains import Chain

from fusegen.bench.clock import Clock
from fusegen.bench.scale import ScaleRow, append_scale
from fusegen.plan.launches.shapes import AUTOMATIC, Shapes
from fusegen.plan.programs.model import Program
from fusegen.plan.sizes.chain_sizes import Sizes
from fusegen.plan.tunings.tuning_space import forced_name, schedule_names
from fusegen.tune.agreement import agreeing
from fusegen.tune.measure import measure
from fusegen.tune.tail import TailError, TailProgram

COPY = "copy"
# What takes so many times as long as the launcher's choice is measured once.
_FAR = 10.0


def choices(program: Program) -> dict[str, Shapes | None]:
    """The launcher's own choice, then the schedules that can be forced."""
    return {AUTOMATIC: None, **{name: Shapes(name) for name in schedule_names(program)}}


def rows_of(clock: Clock, chain: Chain, program: TailProgram, versions: str) -> list[ScaleRow]:
    """Checks one program at one size and measures it. A row for each schedule that fits."""
    launches = agreeing(program, choices(program.program))
    # Random data, see fusegen/bench/work.py; half of the bytes are read and half are written.
    source = torch.randn(max(program.bytes // 8, 1), device=chain.device)
    target = torch.empty_like(source)
    calls = {COPY: lambda: target.copy_(source), **launches}
    times = measure(clock, calls, most=1)
    # The two-pass schedule with tiny groups takes seconds otherwise.
    close = {name: call for name, call in calls.items() if times[name].median < _FAR * times[AUTOMATIC].median}
    times |= measure(clock, close)
    copy = times.pop(COPY).median
    forced = {name: time for name, time in times.items() if name != AUTOMATIC}
    best = min(forced, key=lambda name: forced[name].median, default=AUTOMATIC)
    chosen = forced_name(program.choice().schedule)
    tail = program.tail
    groups = max((tail.sizes.number(count) for count in chain.plan.chain.group_counts), default=1)
    return [
        ScaleRow(
            spec=chain.plan.spec.name,
            program=program.program.name,
            dtype=chain.dtype,
            rows=tail.rows,
            channels=tail.channels,
            groups=groups,
            schedule=schedule,
            microseconds=round(spread.median, 3),
            microseconds_q1=round(spread.low, 3),
            microseconds_q3=round(spread.high, 3),
            samples=spread.count,
            bytes=program.bytes,
            copy_microseconds=round(copy, 3),
            ratio_to_copy=round(spread.median / copy, 4),
            picoseconds_per_element=round(spread.median * 1e6 / (tail.rows * tail.channels), 4),
            chosen=chosen,
            best=best,
            automatic_over_best=round(times[AUTOMATIC].median / times[best].median, 4) if forced else None,
            device=clock.machine.gpu,
            versions=versions,
        )
        for schedule, spread in times.items()
    ]


def sweep(
    clock: Clock, work: Sequence[tuple[Chain, Sequence[Sizes]]], limit: float, csv: Path, versions: str
) -> tuple[list[ScaleRow], list[str]]:
    """All rows, and what was wrong. Every chain at its first size, then at its second, until the time is over."""
    rows: list[ScaleRow] = []
    problems: list[str] = []
    pairs = [
        (chain, size)
        for column in zip_longest(*(found for _, found in work))
        for (chain, _), size in zip(work, column, strict=True)
        if size is not None
    ]
    began = time.monotonic()
    for done, (chain, size) in enumerate(pairs):
        if time.monotonic() - began > limit:
            print(f"{limit:.0f} s are over: {len(pairs) - done} of {len(pairs)} sizes are left out", flush=True)
            break
        if done % 200 == 0:
            print(f"{done} of {len(pairs)} sizes, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        program = None
        programs = chain.programs(size)
        try:
            for program in programs:
                found = rows_of(clock, chain, program, versions)
                append_scale(csv, found)
                rows += found
                program = None  # its memory is needed for the next
        except (TailError, torch.OutOfMemoryError) as problem:
            where = f"{chain.plan.spec.name} {program.program.name if program else ''} {chain.dtype}"
            problems.append(f"{where} {size.rows}x{size.channels}: {str(problem).splitlines()[0]}")
            print(problems[-1], flush=True)
        programs.close()
        gc.collect()
        if chain.device == "cuda" and torch.cuda.memory_reserved() > 8 << 30:
            torch.cuda.empty_cache()
    return rows, problems
