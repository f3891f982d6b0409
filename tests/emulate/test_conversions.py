"""The stand-ins for bfloat16 and half convert as PyTorch does."""

import shutil
from pathlib import Path

import pytest
import torch

from fusegen.emulate import Buffer, compile_kernels

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "launch.cuh"

#define INDEX int64_t(blockIdx.x) * blockDim.x + threadIdx.x

__global__ void widen(int half, const unsigned short* x, float* y, int64_t n) {
  const int64_t i = INDEX;
  if (i >= n) return;
  y[i] = half ? __half2float(__ushort_as_half(x[i])) : __bfloat162float(__ushort_as_bfloat16(x[i]));
}

__global__ void narrow(int half, const float* x, unsigned short* y, int64_t n) {
  const int64_t i = INDEX;
  if (i >= n) return;
  y[i] = half ? __half_as_ushort(__float2half(x[i])) : __bfloat16_as_ushort(__float2bfloat16(x[i]));
}

extern "C" int run_widen(int half, const void* x, void* y, int64_t n) {
  return fusegen::launch(widen, (n + 255) / 256, 256, 0, nullptr, half, static_cast<const unsigned short*>(x),
                         static_cast<float*>(y), n);
}

extern "C" int run_narrow(int half, const void* x, void* y, int64_t n) {
  return fusegen::launch(narrow, (n + 255) / 256, 256, 0, nullptr, half, static_cast<const float*>(x),
                         static_cast<unsigned short*>(y), n);
}
"""
DTYPES = [torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("conversions")
    for header in ("launch.cuh", "explain.cuh"):
        shutil.copy(ROOT / "templates/support" / header, root)
    (root / "kernels.cu").write_text(SOURCE)
    return compile_kernels(root / "kernels.cu", cache=emulation_cache)


def patterns(dtype):
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def narrow(library, x, dtype):
    y = Buffer.poisoned(x.shape, dtype)
    library.call("run_narrow", int(dtype == torch.float16), Buffer.from_tensor(x), y, x.numel())
    return y.tensor()


def assert_same_bits(actual, expected):
    bits = {2: torch.int16, 4: torch.int32}[expected.dtype.itemsize]
    nan = expected.isnan()
    assert torch.equal(actual.isnan(), nan)
    assert torch.equal(actual.view(bits)[~nan], expected.view(bits)[~nan])  # so that -0 and 0 differ


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_pattern_widens(library, dtype):
    x = patterns(dtype)
    y = Buffer.poisoned(x.shape, torch.float32)
    library.call("run_widen", int(dtype == torch.float16), Buffer.from_tensor(x), y, x.numel())
    assert_same_bits(y.tensor(), x.float())
    assert_same_bits(narrow(library, y.tensor(), dtype), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_narrow(library, dtype):
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(-(2**31), 2**31, (200_000,), generator=generator).to(torch.int32).view(torch.float32)
    # Halfway between neighbours, and the floats next to that: the ties, overflow and underflow among them.
    x = patterns(dtype).float()
    neighbour = (patterns(dtype).view(torch.int16) + 1).view(dtype).float()
    tie = ((x.double() + neighbour.double()) / 2).float()
    limit = torch.tensor([65519.996, 65520.0, 3.3895e38, 3.3961e38, 2.0**-25, 2.0**-24, 2.0**-149])
    near = torch.cat([tie, limit, -limit])
    infinity = torch.tensor(float("inf"))
    values = torch.cat([random, near, near.nextafter(infinity), near.nextafter(-infinity)])
    assert_same_bits(narrow(library, values, dtype), values.to(dtype))
