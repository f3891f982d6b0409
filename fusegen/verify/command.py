"""`fusegen verify`: packages one after another, their tables or one JSON document."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from fusegen.plan.load import planned_files
from fusegen.verify.judgement.report import table, to_json
from fusegen.verify.subjects.packages import choose_device, open_subject
from fusegen.verify.suite import Suite

MIN_WIDTH = 120


def verify_specs(
    specs: Sequence[Path], output: Path, *, emulate: bool, seed: int, as_json: bool, invariance: bool = False
) -> bool:
    """Whether every package passes. Prints a table each, or all as JSON, to stdout. invariance: as Suite has it.

    TF32 is off meanwhile: a float32 module is judged as float32.
    """
    planned = planned_files(specs)
    # The regions of a module first: what is wrong with one shows in the whole.
    plans = [plan for each in planned for plan in each.modules]
    device = choose_device(emulate)
    if device == "cpu" and torch.backends.cpu.get_cpu_capability() == "AVX2":
        # On a processor with AVX2 and without AVX-512, torch 2.13's oneDNN writes beyond its memory in the gradient of
        # the weight of a convolution of one position, and the process ends. Its code for AVX does not. oneDNN reads
        # the variable when it is first used.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = MIN_WIDTH
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    reports = []
    try:
        with tempfile.TemporaryDirectory() as cache:
            for plan in plans:
                subject = open_subject(plan, output, device=device, cache=Path(cache))
                reports.append(Suite(subject, seed=seed, full=device == "cuda", invariance=invariance).report())
                if not as_json:
                    console.print(table(reports[-1]), markup=False)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32
    if as_json:
        name = torch.cuda.get_device_name() if device == "cuda" else "emulated on a CPU"
        print(json.dumps(to_json(reports, device=name, torch_version=torch.__version__, seed=seed), indent=1))
    return all(report.ok for report in reports)
