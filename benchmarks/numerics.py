"""Every check of `fusegen verify`, against the original modules instead of the generated references, at full size too.

    PYTHONPATH=. python benchmarks/numerics.py --out DIR      on a CUDA device, with _C.so built (--verification)
    PYTHONPATH=. python benchmarks/numerics.py --render CSV   only writes docs/numerics.md

Exits 1 if anything failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from numerics_page import read_rows, write_page, write_rows
from subjects import CHAINS, SEEDS

from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.plan.sizes.chain_sizes import typical
from fusegen.verify.judgement.findings import Report
from fusegen.verify.subjects.packages import open_subject
from fusegen.verify.suite import Suite


def check(name: str, specs: Path, output: Path) -> Report:
    """One chain: the suite, and three optimiser steps of the seed configurations at full size."""
    chain = CHAINS[name]
    plan = plan_file(specs / f"{chain.spec}.yaml")
    subject = open_subject(module_of(plan), output, device="cuda", cache=Path(), original=chain.module)
    suite = Suite(subject)
    report = suite.report()
    if name in SEEDS:
        report.findings.extend(suite.training(typical(plan)))
    return report


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for numerics.csv")
    parser.add_argument("--render", type=Path, metavar="CSV", help="write docs/numerics.md and stop")
    parser.add_argument("--chains", nargs="*", default=list(CHAINS), help="by spec, such as matmul_bn_bias_div_swish")
    options = parser.parse_args()
    if options.render:
        write_page(read_rows(options.render), Path("docs/numerics.md"))
        return 0
    if not torch.cuda.is_available() or options.out is None:
        parser.error("needs a CUDA device and --out")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    reports = {}
    for name in options.chains:
        reports[name] = report = check(name, Path("specs"), Path("generated"))
        print(f"{name}: {len(report.findings)} comparisons, {len(report.failed)} failed, {report.skipped}", flush=True)
        for finding in report.failed[:10]:
            print("   ", finding.check, finding.shape, finding.dtypes, finding.mode, finding.item, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    write_rows(reports, options.out / "numerics.csv", f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    return 0 if all(report.ok for report in reports.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
