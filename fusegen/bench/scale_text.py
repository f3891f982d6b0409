"""What the CSV of benchmarks/scale.py tells, as text: a table, the worst choices, the largest jumps."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from fusegen.bench.scale import MOST_JUMP, MOST_OVER_BEST, ScaleRow, grouped, jumps, poor_choices
from fusegen.bench.table import number
from fusegen.plan.launches.shapes import AUTOMATIC

_HEAD = """
## Scale on {device}

By `benchmarks/scale.py`, {versions}: the kernels of each program, without the contraction, at
activations of {least} to {most} MiB. Rows and channels are powers of two, odd, prime or unaligned.
Sizes are rows x channels / groups. Sizes whose kernels or launch shapes have changed since they were
measured are left out.

| column | meaning |
|---|---|
| shares | the time of a copy of the fewest bytes over that of the program, median and least, by these bytes |
| choice / best | time with the schedule that the launcher chooses over that of the fastest |
| largest jump | time per element over that of a neighbouring size |
"""
_WIDTH = {"fp32": 4, "bf16": 2, "fp16": 2}


def scale_section(rows: Sequence[ScaleRow], markdown: Callable[[Sequence[dict[str, str]]], str]) -> str:
    """A part of docs/performance.md for each GPU; nothing without rows. markdown: writes a table."""
    parts = []
    for mine in grouped(rows, "device"):
        sizes = [row.elements * _WIDTH[row.dtype] / 2**20 for row in mine]
        versions = "; ".join(dict.fromkeys(row.versions for row in mine))
        ends = {"least": number(min(sizes)), "most": number(max(sizes))}
        parts += [_HEAD.format(device=mine[0].device, versions=versions, **ends), markdown(list(scale_lines(mine)))]
        parts.append(report(mine))
    return "\n".join(parts)


def scale_lines(rows: Sequence[ScaleRow]) -> Iterator[dict[str, str]]:
    """A line for each program and dtype: shares of the copy's speed by size, the worst choice and the worst jump."""
    for same in grouped(rows, "device", "spec", "program", "dtype"):
        mine = [row for row in same if row.schedule == AUTOMATIC]
        line = {"chain": same[0].spec, "program": same[0].program, "dtype": same[0].dtype, "sizes": str(len(mine))}
        for title, least, most in (
            ("share of a copy, to 16 MiB", 0, 1 << 24),
            ("to 256 MiB", 1 << 24, 1 << 28),
            ("above", 1 << 28, 1 << 62),
        ):
            shares = [1 / row.ratio_to_copy for row in mine if least < row.bytes <= most]
            line[title] = f"{statistics.median(shares):.0%} (least {min(shares):.0%})" if shares else ""
        worst = next(iter(poor_choices(same, 1.0)), None)
        jump = next(iter(jumps(same, 1.0)), None)
        line["choice / best"] = f"{worst.ratio:.2f} at {worst.automatic.size}" if worst else "1.00"
        line["largest jump"] = f"{jump.ratio:.2f} at {jump.at.size}" if jump else ""
        yield line


def report(rows: Sequence[ScaleRow], most: int = 5) -> str:
    """The worst choices and jumps, in words. most: of each."""
    choices, cliffs = poor_choices(rows), jumps(rows)
    lines = [f"The automatic choice is more than {MOST_OVER_BEST:g} times the best at {len(choices)} size(s).", ""]
    for choice in choices[:most]:
        row, best = choice.automatic, choice.best
        times = f"{row.microseconds:.1f} us, {best.schedule} {best.microseconds:.1f} us"
        lines.append(f"- {choice.ratio:.2f}: {row.what}, {row.size}: {times}")
    jumping = f"An element takes more than {MOST_JUMP:g} times what it takes beside at {len(cliffs)} pair(s) of sizes."
    lines += ["", jumping, ""]
    for jump in cliffs[:most]:
        times = f"{jump.at.picoseconds_per_element:.2f} ps, at {jump.beside.size} "
        times += f"{jump.beside.picoseconds_per_element:.2f} ps; the copies {jump.copy:.2f}"
        lines.append(f"- {jump.ratio:.2f}: {jump.at.what}, {jump.at.size}: {times} ({jump.kind})")
    return "\n".join(lines) + "\n"
