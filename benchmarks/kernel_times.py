"""Device time of each generated kernel, beside a copy of the bytes that it moves.

    PYTHONPATH=. python benchmarks/kernel_times.py --out DIR     on a CUDA device, with _C.so built

The L2 is flushed before each pass. Bytes are what the kernel's arguments hold, each read or written once.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path

import torch
from kernel_names import KernelName, kernel_name, planned_bytes
from subjects import SEEDS, subjects
from torch.profiler import ProfilerActivity, profile

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
REPEATS = 20
LIBRARY = "library"


def copy_microseconds(count: int, flush: torch.Tensor) -> float:
    """Median device time of a copy that moves `count` bytes, reads and writes together."""
    source = torch.empty(max(count // 2, 1), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(REPEATS):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(200_000)  # both events and the copy are queued before the first one runs
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def kernel_microseconds(module, x, train: bool, flush: torch.Tensor) -> dict[KernelName | str, float]:
    """Median device time of each kernel in one forward and backward."""
    module.train(train)
    grad = torch.randn_like(module(x))
    wanted = [x, *module.parameters()]
    for _ in range(3):
        torch.autograd.grad(module(x), wanted, grad)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(REPEATS):
            flush.zero_()
            torch.autograd.grad(module(x), wanted, grad)
        torch.cuda.synchronize()
    found: dict[KernelName | str, list[float]] = defaultdict(list)
    for event in profiler.events():
        name = kernel_name(event.name)
        if name or re.match(r"nvjet|gemm|cutlass|sm\d+", event.name):
            found[name or LIBRARY].append(event.device_time)
    return {name: statistics.median(times) for name, times in found.items()}


def bytes_of(spec: str, width: int) -> dict[KernelName, int]:
    """Bytes of each kernel at the typical sizes, scaled from the plan's float32 to the width of the precision."""
    plan = json.loads((Path("generated") / spec / "plan.json").read_text(encoding="utf-8"))
    return {name: count * width // 4 for name, count in planned_bytes(plan).items()}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--chains", nargs="*", default=list(SEEDS))
    options = parser.parse_args()
    flush = torch.empty(512 * 2**20, dtype=torch.uint8, device="cuda")
    rows = []
    for name, subject in subjects(options.chains, stand_in=False).items():
        for precision, dtype in PRECISIONS.items():
            fused, _, x = subject.pair(subject.chain.full, dtype, "cuda", seed=1)
            sizes = bytes_of(subject.chain.spec, dtype.itemsize)
            for train in (True, False):
                for kernel, time in kernel_microseconds(fused, x, train, flush).items():
                    count = sizes.get(kernel, 0)
                    copy = copy_microseconds(count, flush) if count else 0.0
                    ratio = f"{time / copy:.2f}" if copy else ""
                    rows.append(
                        (
                            name,
                            precision,
                            "train" if train else "eval",
                            str(kernel),
                            f"{time:.1f}",
                            count,
                            f"{copy:.1f}",
                            ratio,
                        )
                    )
                    print(*rows[-1], sep="  ", flush=True)
    if options.out:
        with (options.out / "kernel_times.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("spec", "precision", "mode", "kernel", "us", "bytes", "copy_us", "ratio", "device"))
            writer.writerows(row + (torch.cuda.get_device_name(),) for row in rows)


if __name__ == "__main__":
    main()
