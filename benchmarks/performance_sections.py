"""Parts of docs/performance.md from CSVs that other scripts than `fusegen bench` write."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Line = dict[str, str]
Markdown = Callable[[Sequence[Line]], str]

_KERNELS = """## Kernels on {device}

By `benchmarks/kernel_times.py`: device time of each kernel in a training step, in microseconds, the
time of a device copy of as many bytes, and the ratio of the two. Evaluation is in the CSV.
"""
_LIMITS = """## What bounds the kernels on {device}

By `benchmarks/kernel_limits.py`: what Nsight Compute counts of each kernel, from cold caches.

| column | meaning |
|---|---|
| us | the time |
| dram_percent | share of the memory's peak |
| issue_percent | share of the slots in which an instruction could be issued |
| special_percent | the same of the unit that computes exponentials and reciprocals |
| warps_percent | share of the warps that a multiprocessor could hold |
| per_element | instructions of all threads for each element of the activations |

An H200 at 1.7 GHz copies 4200 GB/s. A kernel that moves 6 bytes of an element, as a backward pass in
16 bits does, then has about 41 slots for it; 82 in float32. A kernel with more instructions does not
run at the copy's speed.

The special unit takes an instruction of a warp in 8 slots of a scheduler. Two sigmoids of each
element (gemm_groupnorm_swish_multiply_swish), an exponential and a reciprocal each, take 32 slots. A
forward pass in 16 bits has 27. It does not run at the copy's speed either.
"""
_JUMPS = """## What is behind the largest jumps, {device}

By `benchmarks/jump_limits.py`: what Nsight Compute counts, from cold caches. For each program and
dtype there are the two sizes between which an element's time differs most, the faster one first, and
of each program the kernel that takes longest.

The columns are picoseconds for each element, shares as in *What bounds the kernels* and of what the
L1 can do, and the slots of warps for each element, those of idle lanes included.

Where rows, or groups of channels, begin within vectors, an element takes more slots: smaller
accesses move it, and lanes are idle at the ends of rows.
"""
_HOST = """## The host's time at small shapes, {device}

By `benchmarks/host_time.py`, in microseconds. A step is the forward pass and the gradients of the
input and all parameters, timed until the host may go on. This is the smallest size; the CSV has
larger ones.

| subject | what it is |
|---|---|
| bare | an `autograd.Function` with as many inputs and gradients that computes nothing: what autograd itself takes |
| ops | the fused module's two C++ ops, each in a loop: three library products, launches, tensors |
| bare and ops | the bare Function with calls of the two ops in it, whose results it drops |
| one thread | with the autograd engine in the calling thread |

**bare and ops** is about the least that a step takes whose ops are called by a Python Function. It
takes longer than its parts alone, presumably because each evicts the other's code from the caches.

Without **one thread**, each step hands over to the engine's thread of the device and back. That
takes as long as the machine takes to wake a thread, and the caches of two cores.
"""
_BUILD = """## Builds and imports

By `benchmarks/build_times.py`, in seconds, on {cores} cores with a load of {load} when it began:
medians of the wall time, and the CPU time of a build with all of its compilers. What is wanted is
the wall time on two idle cores.
"""


# The subject of host_time.py whose step is about the least of a module's: the same ops, called by a Function.
LEAST_STEP = "bare and ops"

# Products of the extents below which the host decides how long a call takes: rows x input features x channels, or
# rows x channels. In front of a convolution: batch x channels x positions.
_SMALL = {3: 2**33, 2: 2**22}
_SMALL_IMAGES = 2**22


def is_small(shape: str) -> bool:
    """Whether the host decides how long a call takes, at rows x input features x channels or rows x channels."""
    if is_in_front_of_convolution(shape):
        return _volume(shape) < _SMALL_IMAGES
    return _volume(shape) < _SMALL[len(shape.split("x"))]


def is_in_front_of_convolution(shape: str) -> bool:
    """Whether a shape is that of a convolution's input, to the channels of its result."""
    return " to " in shape


def _volume(shape: str) -> int:
    """Of a convolution: of its input."""
    return math.prod(int(extent) for extent in shape.partition(" to ")[0].split("x"))


def read_lines(path: Path) -> list[Line]:
    """The lines of a CSV by its columns."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def device_section(head: str, lines: Sequence[Line], markdown: Markdown) -> str:
    """The lines of each device behind the head, which has a place for its name; nothing without lines."""
    parts = []
    for device in dict.fromkeys(line["device"] for line in lines):
        mine = [{k: v for k, v in line.items() if k != "device"} for line in lines if line["device"] == device]
        parts += [head.format(device=device), markdown(mine)]
    return "\n".join(parts)


def kernels_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """Times of the kernels of training; nothing without lines. Library calls have no bytes and no ratio to a copy."""
    mine = [line for line in lines if line.get("ratio", "-") and line.get("mode", "train") == "train"]
    return device_section(_KERNELS, [{k: v for k, v in line.items() if k != "mode"} for line in mine], markdown)


def limits_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """What Nsight Compute says of each kernel; nothing without lines."""
    return device_section(_LIMITS, lines, markdown)


def jumps_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """What Nsight Compute says of the sizes at the largest jumps; nothing without lines."""
    return device_section(_JUMPS, lines, markdown)


def host_times(lines: Sequence[Line]) -> dict[tuple[str, ...], dict[tuple[str, str], float]]:
    """Microseconds by subject and part, for each device, configuration, size and precision of host_time.py."""
    places: dict[tuple[str, ...], dict[tuple[str, str], float]] = {}
    for line in lines:
        place = (line["device"], line["spec"], line["shape"], line["precision"])
        places.setdefault(place, {})[line["subject"], line["part"]] = float(line["microseconds"])
    return places


def host_section(lines: Sequence[Line], markdown: Markdown) -> str:
    """Steps of the fused module, eager and a Function that does nothing, without the ops and with them; the ops alone.

    Nothing without lines.
    """
    table = []
    least = min((line["shape"] for line in lines), key=_volume, default="")
    for place, times in host_times([line for line in lines if line["shape"] == least]).items():
        row = dict(zip(("device", "spec", "size", "dtype"), place, strict=True))
        row["ops"] = f"{times['fused', 'op forward'] + times['fused', 'op backward']:.0f}"
        row |= _steps(times, "step")
        row |= {f"{name}, one thread": text for name, text in _steps(times, "one thread").items()}
        table.append(row)
    return device_section(_HOST, table, markdown)


def _steps(times: Mapping[tuple[str, str], float], part: str) -> dict[str, str]:
    columns = {subject: f"{times[subject, part]:.0f}" for subject in ("eager", "fused", "bare", LEAST_STEP)}
    for subject in ("fused", LEAST_STEP):
        columns[f"eager / {subject}"] = f"{times['eager', part] / times[subject, part]:.2f}"
    return columns


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
