"""Time per element of the generated tail kernels over size, and whether the launchers choose the best schedule.

    PYTHONPATH=. python benchmarks/scale.py --csv benchmarks/results/scale_h200.csv      on a CUDA device, with nvcc
    PYTHONPATH=. python benchmarks/scale.py --self-test                                  without one

The kernels alone, without the contraction: every program of a chain, at each size with the schedule that its launcher
chooses and with each that can be asked for. Their results must agree before anything is timed. Sizes are powers of two
of bytes in several aspect ratios, then what lies beside them: one more, four more, the nearest prime. Device time from
a flushed L2, behind a delay, the schedules and a copy of the fewest bytes in turn. Ends with the worst choices and the
largest jumps between neighbouring sizes.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import torch
from scale_chains import DTYPES, Chain, chains

from fusegen.bench.clock import Clock, CudaClock
from fusegen.bench.rounds import Spread
from fusegen.bench.scale import ScaleRow, append_scale
from fusegen.bench.scale_text import report
from fusegen.plan.candidates import schedule_names
from fusegen.plan.model import Program
from fusegen.plan.shapes import AUTOMATIC, Shapes
from fusegen.tune.agreement import agreeing
from fusegen.tune.launchers import compile_launchers
from fusegen.tune.measure import measure
from fusegen.tune.tail import TailError, TailProgram
from fusegen.verify.sizes import Sizes

SPECS = (
    "matmul_bn_bias_div_swish",
    "gemm_scale_bn",
    "gemm_bias_hardtanh_mish_groupnorm",
    "gemm_groupnorm_swish_multiply_swish",
)
COPY = "copy"
# Below this difference in time, the workspace tells better which schedule was chosen.
_SAME_TIME = 1.05
# What takes so many times as long as the launcher's choice is measured once.
_FAR = 10.0


def choices(program: Program) -> dict[str, Shapes | None]:
    """The launcher's own choice, then the schedules that can be asked for."""
    return {AUTOMATIC: None, **{name: Shapes(name) for name in schedule_names(program)}}


def rows_of(clock: Clock, chain: Chain, program: TailProgram, versions: str) -> list[ScaleRow]:
    """Checks one program at one size and measures it. A row for each schedule that fits."""
    launches = agreeing(program, choices(program.program))
    # Random data, see fusegen/bench/work.py; half of the bytes are read and half are written.
    source = torch.randn(max(program.bytes // 8, 1), device=chain.device)
    target = torch.empty_like(source)
    calls = {COPY: lambda: target.copy_(source), **{name: launch.call for name, launch in launches.items()}}
    times = measure(clock, calls, most=1)
    # The split schedule with tiny groups takes seconds otherwise.
    close = {name: call for name, call in calls.items() if times[name].median < _FAR * times[AUTOMATIC].median}
    times |= measure(clock, close)
    copy = times.pop(COPY).median
    forced = {name: time for name, time in times.items() if name != AUTOMATIC}
    best = min(forced, key=lambda name: forced[name].median, default=AUTOMATIC)
    chosen = _chosen(times, {name: launch.workspace_bytes for name, launch in launches.items()})
    tail = program.tail
    groups = max((tail.extent(count) for count in chain.plan.chain.group_counts), default=1)
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


def _chosen(times: Mapping[str, Spread], workspace: Mapping[str, int]) -> str:
    """Which of the schedules `automatic` is: the only one, else by time, else by the workspace they need."""
    forced = [name for name in times if name != AUTOMATIC]
    if len(forced) < 2:
        return forced[0] if forced else AUTOMATIC
    fast, slow = sorted(forced, key=lambda name: times[name].median)[:2]
    if times[slow].median < _SAME_TIME * times[fast].median:
        same = [name for name in forced if workspace[name] == workspace[AUTOMATIC]]
        if len(same) == 1:
            return same[0]
    return min(forced, key=lambda name: abs(times[name].median - times[AUTOMATIC].median))


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


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=Path("scale.csv"), help="rows are added to it as they come")
    parser.add_argument("--specs", nargs="*", default=SPECS, help="names of generated packages")
    parser.add_argument("--dtypes", nargs="*", default=("fp32", "bf16"), choices=DTYPES)
    parser.add_argument("--max-bytes", type=int, default=8 << 30, help="of the activations (default: 8 GiB)")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds, compilation not counted (default: 240)")
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "fusegen-scale")
    parser.add_argument("--self-test", action="store_true", help="tiny sizes on the emulator; times mean nothing")
    options = parser.parse_args()
    if options.self_test:
        from scale_self_test import self_test

        self_test(options.specs, options.dtypes, options.cache)
        return
    major, minor = torch.cuda.get_device_capability()
    launchers = compile_launchers(options.specs, Path("generated"), options.cache, f"sm_{major}{minor}")
    clock = CudaClock()
    found = chains(options.specs, options.dtypes, launchers, "cuda")
    work = [(chain, chain.sizes(options.max_bytes, options.quick)) for chain in found]
    gc.freeze()  # so that collecting is quick; never in the middle of a measurement
    gc.disable()
    versions = f"torch {clock.machine.torch}, CUDA {clock.machine.cuda}"
    with torch.no_grad():
        rows, problems = sweep(clock, work, options.limit, options.csv, versions)
    print(report(rows))
    if problems:
        sys.exit("\n".join(["Not measured:", *problems]))


if __name__ == "__main__":
    main()
