"""Runs every kernel of every built package at small sizes, for compute-sanitizer.

    PYTHONPATH=. compute-sanitizer --error-exitcode 9 --tool TOOL python benchmarks/sanitize.py

with TOOL memcheck, racecheck, initcheck or synccheck. The widths of the inputs are odd, so that cuBLAS takes no kernel
that moves data by the tensor memory accelerator: racecheck and initcheck do not know what that orders and writes, and
report cuBLAS's kernels, or whoever reads their results. `--probe` shows that with PyTorch's operators alone. With
PYTORCH_NO_CUDA_MEMORY_CACHING=1 each tensor is an allocation of its own, so that memcheck sees its end.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from fusegen.plan.load import planned_files
from fusegen.plan.sizes.module_sizes import module_sizes
from fusegen.verify.runs.run import draw_gradient, run
from fusegen.verify.subjects.packages import open_subject
from fusegen.verify.suite import Suite

# rows, input features, channels, groups. With and without vectors, persistent and beyond what a block holds.
SIZES = (
    *((33, 71, 96, 6), (33, 71, 97, 1), (3, 17, 20001, 3), (3, 17, 40000, 2), (3001, 17, 24, 4), (3001, 17, 21, 3)),
    *((531, 17, 4097, 1), (2200, 17, 3001, 1), (900, 17, 5120, 1)),  # large blocks, and clusters backward
    (13200, 17, 252, 4),  # runs of eight elements of 16 bits
    (16411, 17, 256, 4),  # L2-resident
)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", action="store_true", help="a 16-bit product and relu, by PyTorch alone, and stop")
    parser.add_argument("specs", type=Path, nargs="*", default=sorted(Path("specs").glob("*.yaml")))
    options = parser.parse_args()
    if options.probe:
        x, weight = (torch.randn(96, 96, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        print(float(torch.relu(x @ weight).sum()))
        return
    for plan in planned_files(options.specs):
        subject = open_subject(plan, Path("generated"), device="cuda", cache=Path())
        for mode in Suite(subject).modes():
            dtype = getattr(torch, mode.roles["activation"]) if not mode.plain else None
            for shape in SIZES:
                fused, original, inputs = subject.pair(module_sizes(plan, *shape), mode, seed=1)
                for train in (True, False):
                    gradient = draw_gradient(original, inputs, autocast_dtype=dtype, train=train)
                    run(fused, inputs, gradient, autocast_dtype=dtype, train=train)
        torch.cuda.synchronize()
        print(plan.spec.name, flush=True)


if __name__ == "__main__":
    main()
