"""Writes docs/performance.md from the CSVs that time_chains.py and kernel_times.py wrote.

    PYTHONPATH=. python benchmarks/performance_page.py benchmarks/results/timings_h200.csv \\
        benchmarks/results/kernel_times_h200.csv
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from time_chains import table

_HEAD = """# Performance

Measured by `benchmarks/time_chains.py` on {device}; `benchmarks/performance_page.py` writes this page from the CSVs in
`benchmarks/results/`. Medians; device events with the L2 flushed for the large sizes, wall clock for the small
ones. Before
anything is timed its outputs and gradients are checked. `contraction` is the linear layer's library calls
alone; `compile`
is `torch.compile` in its default mode. The last column compares with the faster of eager and compile: below 1 the fused
module is faster. The largest of them is {largest}.
"""
_KERNELS = """## Kernels

By `benchmarks/kernel_times.py`: device time of each kernel in one forward and backward pass, in microseconds, beside a
device copy that moves as many bytes, and the ratio of the two. Float32 streams run at the speed of a copy; 16-bit
kernels with a norm on chip are still bound by instructions and latency.
"""


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timings", type=Path)
    parser.add_argument("kernels", type=Path)
    parser.add_argument("--page", type=Path, default=Path("docs/performance.md"))
    options = parser.parse_args()
    timings, kernels = rows_of(options.timings), rows_of(options.kernels)
    largest = max(float(r["ratio_to_best_peer"]) for r in timings if r["subject"] == "fused")
    parts = [_HEAD.format(device=timings[0]["device"], largest=f"{largest:.2f}")]
    for kind, title in (("large", "## The seed configurations"), ("small", "## Small shapes")):
        parts += [title + "\n", table([row for row in timings if row["kind"] == kind])]
    parts += [_KERNELS, "| chain | precision | mode | kernel | us | copy, us | ratio |\n|---|---|---|---|---|---|---|"]
    for row in kernels:
        if row["ratio"]:
            cells = [row[key] for key in ("config", "precision", "mode", "kernel", "us", "copy_us", "ratio")]
            parts.append(f"| {' | '.join(cells)} |")
    options.page.write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
