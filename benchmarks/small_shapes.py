"""Forward and backward of the seed chains at small shapes, for a run under compute-sanitizer.

    PYTHONPATH=. PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python benchmarks/small_shapes.py
    PYTHONPATH=. compute-sanitizer --tool racecheck python benchmarks/small_shapes.py

Without torch's caching allocator each tensor is an allocation of its own, so that memcheck sees its end.
"""

from __future__ import annotations

import argparse

import torch
from subjects import FURTHER, SEEDS, subjects

# Rows, input features, output features, groups: on chip and split, vector and scalar kernels.
SIZES = ((33, 64, 96, 6), (3, 16, 33, 3), (4000, 16, 64, 8))
DTYPES = (torch.float32, torch.bfloat16)


def main() -> None:
    """Runs each configuration once, in training and in evaluation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", nargs="*", default=[*SEEDS, *FURTHER])
    options = parser.parse_args()
    launched = 0
    for name, subject in subjects(options.chains, stand_in=False).items():
        for size in SIZES:
            for dtype in DTYPES:
                fused, _, x = subject.pair(size, dtype, "cuda", seed=1)
                for train in (True, False):
                    y = fused.train(train)(x)
                    y.backward(torch.randn_like(y))
                    launched += 1
        torch.cuda.synchronize()
        print(f"{name} done", flush=True)
    print(f"{launched} passes")


if __name__ == "__main__":
    main()
