"""mish, its slope and that of silu, for results of each type, against double precision: in the tails, too."""

import math

import pytest
import torch

from fusegen.emulate import Buffer
from tests.emulate.building import compiled_shapes

SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "../support/launch.cuh"
#include "../support/math.cuh"

template <typename Out, typename A>
__global__ void evaluate(const A* x, A* y, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const A power = fusegen::bounded_exp<Out>(x[i]);
  y[i] = fusegen::mish<Out>(x[i], power);
  y[n + i] = fusegen::mish_slope<Out>(x[i], power);
  y[2 * n + i] = fusegen::silu_slope(x[i], fusegen::sigmoid<Out>(x[i]));
}

template <typename Out, typename A>
int run(const void* x, void* y, int64_t n) {
  return fusegen::launch(evaluate<Out, A>, (n + 255) / 256, 256, 0, nullptr, static_cast<const A*>(x),
                         static_cast<A*>(y), n);
}

extern "C" int run_float16(const void* x, void* y, int64_t n) { return run<__half, float>(x, y, n); }
extern "C" int run_float32(const void* x, void* y, int64_t n) { return run<float, float>(x, y, n); }
extern "C" int run_float64(const void* x, void* y, int64_t n) { return run<double, double>(x, y, n); }
"""
ULP = {"float16": 2.0**-23, "float32": 2.0**-23, "float64": 2.0**-52}
# exp(-x) is a normal float up to here.
MOST = 80.0


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled_shapes(SOURCE, tmp_path_factory.mktemp("slopes"))


def evaluate(library, out, x):
    """mish, its slope and that of silu, at each x, as computed for results of the dtype `out`."""
    dtype = torch.float64 if out == "float64" else torch.float32
    y = Buffer.poisoned([3, len(x)], dtype)
    library.call(f"run_{out}", Buffer.from_tensor(x.to(dtype), readonly=True), y, len(x))
    return y.tensor().double()


def exactly(x):
    """The same in double precision, from other formulas, without cancellation."""
    x = x.double()
    soft = torch.log1p(torch.exp(-x.abs())) + x.clamp_min(0)
    s, rest = torch.sigmoid(x), torch.sigmoid(-x)
    cosh = torch.cosh(soft.clamp_max(300))
    return torch.stack([x * torch.tanh(soft), torch.tanh(soft) + x * s / cosh**2, s + x * s * rest])


def grid(most):
    """Of floats: evenly spaced, close to the bound, and small ones of both signs."""
    small = torch.logspace(-38, 0, 500, dtype=torch.float64)
    near = torch.linspace(19.9, 20.1, 201)
    return torch.cat([torch.zeros(1), torch.linspace(-most, most, 20_001), near, small, -small]).float()


@pytest.mark.parametrize("out", list(ULP))
def test_values_and_slopes(library, out):
    """mish to some ulps, in both tails; slopes to some of 1 and of x, which the sigmoid's error comes with."""
    x = grid(MOST)
    found, exact = evaluate(library, out, x), exactly(x)
    bound = (8 + x.double().abs()) * ULP[out]
    assert ((found[0] - exact[0]).abs() <= bound * exact[0].abs()).all()
    assert ((found[1:] - exact[1:]).abs() <= bound).all()


@pytest.mark.parametrize("out", list(ULP))
def test_far_away(library, out):
    """The slope does not grow with x where the exponential no longer does."""
    x = torch.tensor([100.0, 1e4, 1e18, 3e38])
    assert ((evaluate(library, out, x)[1:] - 1).abs() <= 2 * ULP[out]).all()
    assert (evaluate(library, out, -x)[1:].abs() <= 1e-9).all()


@pytest.mark.parametrize("out", list(ULP))
def test_infinite_and_unknown_values(library, out):
    """As PyTorch on a GPU: mish(-inf) is NaN, from 0 times infinity, and slopes are NaN."""
    x = torch.tensor([math.inf, -math.inf, math.nan])
    value, *slopes = evaluate(library, out, x)
    assert value[0] == math.inf and value[1:].isnan().all()
    assert torch.stack(slopes).isnan().all()
