"""Parts of docs/performance.md from CSVs that other scripts than `fusegen bench` write."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

Line = dict[str, str]
Markdown = Callable[[Sequence[Line]], str]

_LIMITS = """## What bounds the kernels on {device}

By `benchmarks/kernel_limits.py`, as Nsight Compute counts it, each kernel from cold caches: the time, the share of the
memory's peak, the share of all slots in which instructions could be issued that were used, the share of the warps that
a multiprocessor could hold, and the instructions of all threads for each element of the activations. An H200 at 1.7 GHz
that copies 4200 GB/s has about 41 slots for each element of which a kernel moves 6 bytes, as a backward pass in 16 bits
does, and 82 in float32: no kernel with more instructions than that runs at the copy's speed.
"""
_HOST = """## The host's time at small shapes, {device}

By `benchmarks/host_time.py`, in microseconds: one step is the forward pass and the gradients of the input and all
parameters, timed until the host may go on. **bare** is an `autograd.Function` with as many inputs and gradients that
computes nothing: what autograd itself takes, of the fused step too. Where it is more than the last column, no module
behind a Python Function is 2.5 times faster than eager.
"""
_BUILD = """## Builds and imports

By `benchmarks/build_times.py`, in seconds, on {cores} cores with a load of {load} when it began: medians of the wall
time, and the CPU time of a build with all of its compilers. What is wanted is the wall time on two idle cores.
"""


def read_lines(path: Path) -> list[Line]:
    """The lines of a CSV by its columns."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def limits_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """What Nsight Compute says of each kernel; nothing without lines."""
    parts = []
    for device, mine in _by(lines, "device"):
        parts += [
            _LIMITS.format(device=device),
            markdown([{k: v for k, v in line.items() if k != "device"} for line in mine]),
        ]
    return "\n".join(parts)


def host_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """Steps of the fused module, eager and a Function that does nothing; nothing without lines."""
    parts = []
    for device, mine in _by(lines, "device"):
        table = []
        for place in dict.fromkeys((line["config"], line["shape"], line["precision"]) for line in mine):
            steps = {
                line["subject"]: float(line["microseconds"])
                for line in mine
                if (line["config"], line["shape"], line["precision"]) == place and line["part"] == "step"
            }
            table.append(
                {
                    **dict(zip(("config", "size", "dtype"), place, strict=True)),
                    **{name: f"{steps[name]:.0f}" for name in ("eager", "fused", "bare")},
                    "eager / fused": f"{steps['eager'] / steps['fused']:.2f}",
                    "eager / 2.5": f"{steps['eager'] / 2.5:.0f}",
                }
            )
        parts += [_HOST.format(device=device), markdown(table)]
    return "\n".join(parts)


def build_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """Builds and imports; nothing without lines."""
    if not lines:
        return ""
    table = [
        {
            "what": line["what"],
            "specs": line["specs"],
            "targets": line["targets"],
            "wall, s": line["wall_s"],
            "CPU, s": line["cpu_s"],
            "wanted, s": line["limit_s"],
        }
        for line in lines
    ]
    return _BUILD.format(cores=lines[0]["cores"], load=lines[0]["load"]) + "\n" + markdown(table)


def _by(lines: Sequence[Line], column: str) -> list[tuple[str, list[Line]]]:
    ordered = sorted(lines, key=lambda line: line[column])
    return [(key, list(found)) for key, found in groupby(ordered, key=lambda line: line[column])]
