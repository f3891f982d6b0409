"""What is behind the largest jumps of scale.py, as Nsight Compute counts it: each size beside its neighbour.

    PYTHONPATH=. python benchmarks/jump_limits.py --out DIR     on a CUDA device, with ncu and nvcc

For each program and dtype the pair of sizes between which an element's time differs most, of benchmarks/results. Of
each program the kernel that takes longest, launched as its launcher chooses, from cold caches, at the clocks that the
GPU has. An instruction of a warp takes a slot for each of its 32 lanes, whether they have something to do or not.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from nsight import KERNELS, profile, short_name
from scale_chains import CACHE, chains, launchers_for_device
from scale_sizes import Size

from fusegen.bench.scale import Jump, ScaleRow, jumps, read_scale

SHARES = ("dram_percent", "issue_percent", "l1_percent", "warps_percent")
COLUMNS = ("spec", "program", "dtype", "size", "kernel", "ps", *SHARES, "slots", "device")
RESULTS = Path(__file__).parent / "results" / "scale_h200.csv"
SEPARATOR = "spin_kernel"  # of torch.cuda._sleep: between the kernels of two programs
LANES = 32


def largest(rows: Sequence[ScaleRow], most: int) -> list[Jump]:
    """One for each program and dtype, the largest first, `most` at most."""
    found: dict[str, Jump] = {}
    for jump in jumps(rows):
        found.setdefault(jump.at.what, jump)
    return list(found.values())[:most]


def run_all(sizes: Sequence[ScaleRow], cache: Path) -> None:
    """What is profiled: the second of two launches of each program at its size, with a separator behind it."""
    launchers = launchers_for_device(list(dict.fromkeys(row.spec for row in sizes)), cache)
    for row in sizes:
        [chain] = chains([row.spec], [row.dtype], launchers, "cuda")
        [size] = chain.allowed([Size(row.rows, row.channels, row.groups)])
        program = next(each for each in chain.programs(size) if each.program.name == row.program)
        launch = program.launch()
        for profiled in (False, True):
            program.reset()
            torch.cuda.synchronize()
            if profiled:
                torch.cuda.profiler.start()
            if status := launch():
                raise SystemExit(f"{row.what} at {row.size}: CUDA error {status}")
            torch.cuda._sleep(1)
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
        del program, launch
        torch.cuda.empty_cache()


def limits(sizes: Sequence[ScaleRow], command: Sequence[str]) -> list[dict[str, str | float]]:
    """A row for each size. ps: an element's time. slots: those of warps for each element of the activations."""
    programs: list[list[dict]] = [[]]
    for launch in profile(command, f"{KERNELS}|{SEPARATOR}", ("ns", *SHARES, "warp_instructions")):
        if SEPARATOR in launch["kernel"]:
            programs.append([])
        else:
            programs[-1].append(launch)
    found = []
    for row, launches in zip(sizes, programs[:-1], strict=True):
        longest = max(launches, key=lambda launch: launch["ns"])
        found.append(
            {
                "spec": row.spec,
                "program": row.program,
                "dtype": row.dtype,
                "size": row.size,
                "kernel": short_name(longest["kernel"]),
                "ps": round(longest["ns"] * 1e3 / row.elements, 2),
                **{key: round(longest[key], 1) for key in SHARES},
                "slots": round(longest["warp_instructions"] * LANES / row.elements, 1),
                "device": torch.cuda.get_device_name(),
            }
        )
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--scale", type=Path, default=RESULTS, help="the CSV of scale.py")
    parser.add_argument("--most", type=int, default=12, help="jumps, the largest first")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--run", action="store_true", help="what ncu starts")
    options = parser.parse_args()
    sizes = [row for jump in largest(read_scale(options.scale), options.most) for row in (jump.beside, jump.at)]
    if options.run:
        run_all(sizes, options.cache)
        return
    shared = ["--scale", str(options.scale), "--most", str(options.most), "--cache", str(options.cache)]
    found = limits(sizes, [sys.executable, __file__, "--run", *shared])
    with (options.out / "jump_limits.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    for row in found:
        print(*row.values(), sep="  ")


if __name__ == "__main__":
    main()
