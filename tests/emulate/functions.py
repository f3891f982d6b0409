"""Functions of templates/support/activations.cuh at many points, as computed for results of each type.

The emulator has the host's exponentials and divisions: what approximates them on a GPU is tested there, in chains.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from fusegen.emulate import Buffer, EmulatedLibrary
from tests.emulate.building import compiled_shapes

_SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../support/activations.cuh"
#include "../support/launch.cuh"

using namespace fusegen;

template <typename Out, typename A>
__global__ void evaluate(const A* points, A* results, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const A x = points[i];
  const A values[] = {%s};
  for (const A value : values) {
    results[i] = value;
    results += n;
  }
}

template <typename Out, typename A>
int run(const void* points, void* results, int64_t n) {
  return launch(evaluate<Out, A>, (n + 255) / 256, 256, 0, nullptr, static_cast<const A*>(points),
                static_cast<A*>(results), n);
}

extern "C" int run_float16(const void* x, void* y, int64_t n) { return run<__half, float>(x, y, n); }
extern "C" int run_bfloat16(const void* x, void* y, int64_t n) {
  return run<__nv_bfloat16, float>(x, y, n);
}
extern "C" int run_float32(const void* x, void* y, int64_t n) { return run<float, float>(x, y, n); }
extern "C" int run_float64(const void* x, void* y, int64_t n) { return run<double, double>(x, y, n); }
"""


def grid(most: float, *more: torch.Tensor) -> torch.Tensor:
    """Floats: evenly spaced, small ones of both signs, and more."""
    small = torch.logspace(-38, 0, 500, dtype=torch.float64)
    return torch.cat([torch.zeros(1), torch.linspace(-most, most, 20_001), *more, small, -small]).float()


class Functions:
    """C++ expressions of `x` and of the type `Out` of the results that depend on them, compiled for the emulator."""

    def __init__(self, expressions: Sequence[str], folder: Path, cache: Path) -> None:
        self._count = len(expressions)
        self._library: EmulatedLibrary = compiled_shapes(_SOURCE % ", ".join(expressions), folder, cache)

    def __call__(self, out: str, x: torch.Tensor) -> torch.Tensor:
        """A row for each expression, in double precision. out: the results' dtype, which decides that of x."""
        dtype = torch.float64 if out == "float64" else torch.float32
        results = Buffer.poisoned([self._count, len(x)], dtype)
        self._library.call(f"run_{out}", Buffer.from_tensor(x.to(dtype), readonly=True), results, len(x))
        return results.tensor().double()
