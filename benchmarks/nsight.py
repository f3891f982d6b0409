"""Counters of the GPU, as Nsight Compute reads them: each kernel that a command launches, from cold caches."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Mapping, Sequence

KERNELS = r"(forward|backward)(_(row|column|partials|apply|segments))?"


def profile(command: Sequence[str], pattern: str, metrics: Mapping[str, str]) -> list[dict[str, str | float]]:
    """`kernel` and `metrics`, by our names for those of ncu, of each launch of a kernel like `pattern`, in order.

    The command says when, by the profiler's start and stop. Units are base ones, the clocks those that the GPU has.
    """
    ncu = ["ncu", "--csv", "--print-units", "base", "--profile-from-start", "off", "--clock-control", "none"]
    ncu += ["--kernel-name", f"regex:^({pattern})$", "--metrics", ",".join(metrics.values())]
    done = subprocess.run([*ncu, *command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    names = {theirs: ours for ours, theirs in metrics.items()}
    launches: dict[str, dict[str, str | float]] = {}
    for line in csv.DictReader(text for text in done.stdout.splitlines() if text.startswith('"')):
        launch = launches.setdefault(line["ID"], {"kernel": line["Kernel Name"]})
        launch[names[line["Metric Name"]]] = float(line["Metric Value"].replace(",", ""))
    return list(launches.values())


def short_name(kernel: str) -> str:
    """A kernel's name without namespaces, template arguments and parameters."""
    found = re.search(rf"\w*{KERNELS}", kernel)
    return found.group() if found else kernel
