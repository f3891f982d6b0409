"""What bounds each generated kernel, as Nsight Compute counts it: memory, or the issue of instructions.

    PYTHONPATH=. python benchmarks/kernel_limits.py --out DIR     on a CUDA device, with ncu and with _C.so built

One forward and backward pass in training at the full sizes, from cold caches, at the clocks that the GPU has. Kernels
of a few thousand elements (final and scalar reductions) are left out.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from kernel_times import PRECISIONS
from nsight import KERNELS, profile, short_name
from subjects import SEEDS, subjects

SHARES = ("dram_percent", "issue_percent", "special_percent", "warps_percent")
COLUMNS = ("spec", "precision", "kernel", "us", *SHARES, "per_element", "device")


def run_once(name: str) -> None:
    """What is profiled: the second forward pass of two, so that nothing is set up in it, and its backward pass."""
    subject = subjects([name])[name]
    for dtype in PRECISIONS.values():
        module, _, x = subject.pair(subject.chain.full, dtype, "cuda", seed=1)
        module.train()
        wanted = [x, *module.parameters()]
        gradient = torch.randn_like(module(x))
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        torch.autograd.grad(module(x), wanted, gradient)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def limits(name: str) -> list[dict[str, str | float]]:
    """A row for each kernel of a chain. per_element: instructions of threads for each element of the activations."""
    launches = profile([sys.executable, __file__, "--run", name], KERNELS, ("ns", *SHARES, "instructions"))
    rows, _, channels, _ = subjects([name])[name].chain.full
    return [_row(name, launch, rows * channels) for launch in launches]


def _row(name: str, launch: Mapping[str, Any], elements: int) -> dict[str, str | float]:
    return {
        "spec": name,
        "precision": "bf16" if "__nv_bfloat16" in launch["kernel"] else "fp32",
        "kernel": short_name(launch["kernel"]),
        "us": round(launch["ns"] / 1e3, 1),
        **{key: round(launch[key], 1) for key in SHARES},
        "per_element": round(launch["instructions"] / elements, 1),
        "device": torch.cuda.get_device_name(),
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--chains", nargs="*", default=list(SEEDS))
    parser.add_argument("--run", metavar="CHAIN", help="what ncu starts")
    options = parser.parse_args()
    if options.run:
        run_once(options.run)
        return
    with (options.out / "kernel_limits.csv").open("w", buffering=1, newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name in options.chains:
            for row in limits(name):
                writer.writerow(row)
                print(*row.values(), sep="  ", flush=True)


if __name__ == "__main__":
    main()
