"""Time per element of the generated tail kernels over size, and whether the launchers choose the best schedule.

    PYTHONPATH=. python benchmarks/scale.py --csv benchmarks/results/scale_h200.csv      on a CUDA device, with nvcc
    PYTHONPATH=. python benchmarks/scale.py --self-test                                  without one

The kernels alone, without the contraction: every program of a chain, at each size with the schedule that its launcher
chooses and with each that can be forced. Their results must agree before anything is timed. Sizes are powers of two
of bytes in several aspect ratios, then what lies beside them: one more, four more, the nearest prime. Device time from
a flushed L2, behind a delay, the schedules and a copy of the fewest bytes in turn. Ends with the worst choices and the
largest jumps between neighbouring sizes.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

import torch
from scale_chains import CACHE, DTYPES, chains, launchers_for_device
from scale_self_test import self_test
from scale_sweep import sweep

from fusegen.bench.clock import CudaClock
from fusegen.bench.scale_text import report

SPECS = (
    "matmul_bn_bias_div_swish",
    "gemm_scale_bn",
    "gemm_bias_hardtanh_mish_groupnorm",
    "gemm_groupnorm_swish_multiply_swish",
)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=Path("scale.csv"), help="rows are added to it as they come")
    parser.add_argument("--specs", nargs="*", default=SPECS, help="names of generated packages")
    parser.add_argument("--dtypes", nargs="*", default=("fp32", "bf16"), choices=DTYPES)
    parser.add_argument("--max-bytes", type=int, default=8 << 30, help="of the activations (default: 8 GiB)")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds, compilation not counted (default: 240)")
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--self-test", action="store_true", help="tiny sizes on the emulator; times mean nothing")
    options = parser.parse_args()
    if options.self_test:
        self_test(options.specs, options.dtypes, options.cache)
        return
    launchers = launchers_for_device(options.specs, options.cache)
    clock = CudaClock()
    found = chains(options.specs, options.dtypes, launchers, "cuda")
    work = [(chain, chain.sizes(options.max_bytes, options.quick)) for chain in found]
    gc.freeze()  # so that collecting is quick; never in the middle of a measurement
    gc.disable()
    versions = f"torch {clock.machine.torch}, CUDA {clock.machine.cuda}"
    with torch.no_grad():
        rows, problems = sweep(clock, work, options.limit, options.csv, versions)
    print(report(rows))
    if problems:
        sys.exit("\n".join(["Not measured:", *problems]))


if __name__ == "__main__":
    main()
