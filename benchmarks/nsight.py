"""Counters of the GPU, as Nsight Compute reads them: each kernel that a command launches, from cold caches."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Sequence

from kernel_names import kernel_name

# Of whole tensors: the reductions of partial results are left out.
KERNELS = "(row|column|l2|pointwise|row_reduction)_kernel"

# Our names for those of ncu.
METRICS = {
    "ns": "gpu__time_duration.sum",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "l1_percent": "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "special_percent": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "instructions": "smsp__thread_inst_executed.sum",
    "warp_instructions": "smsp__inst_executed.sum",
}


def profile(command: Sequence[str], pattern: str, names: Sequence[str]) -> list[dict[str, str | float]]:
    """`kernel` and the named of METRICS, of each launch of a kernel like `pattern`, in order.

    The command says when, by the profiler's start and stop. Units are base ones, the clocks those that the GPU has.
    """
    ncu = ["ncu", "--csv", "--print-units", "base", "--profile-from-start", "off", "--clock-control", "none"]
    ncu += ["--kernel-name", f"regex:^({pattern})$", "--metrics", ",".join(METRICS[name] for name in names)]
    done = subprocess.run([*ncu, *command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    ours = {METRICS[name]: name for name in names}
    launches: dict[str, dict[str, str | float]] = {}
    for line in csv.DictReader(text for text in done.stdout.splitlines() if text.startswith('"')):
        launch = launches.setdefault(line["ID"], {"kernel": line["Kernel Name"]})
        launch[ours[line["Metric Name"]]] = float(line["Metric Value"].replace(",", ""))
    return list(launches.values())


def short_name(kernel: str) -> str:
    """The program, the kind and the pass of a kernel of ours; any other kernel's name as it is."""
    return str(kernel_name(kernel) or kernel)
