"""Unaligned vectors, which begin anywhere in a row: what is loaded of them, and what is stored."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer, EmulatedLibrary
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/launch.cuh"
#include "../support/unaligned.cuh"

template <typename T, int kVec>
__global__ void copy_vectors(const T* from, T* to, int64_t rows, int64_t channels, int64_t begin, int64_t end) {
  const auto columns = fusegen::row_columns<kVec, false, true>(0, begin, end, threadIdx.x * kVec);
  for (int64_t at = 0; at < rows * channels; at += channels) {
    if (!columns.any()) continue;
    const auto issued = fusegen::issue_load(columns, from, at, rows * channels, rows * channels);
    const auto loaded = fusegen::complete_load(columns, from, at, issued);
    fusegen::Pack<T, kVec> pack;
    for (int v = 0; v < kVec; ++v) pack[v] = loaded[v];
    fusegen::store_pack(columns, to, at, rows * channels, pack);
  }
}

template <typename T, int kVec>
int copied(const void* from, void* to, int64_t rows, int64_t channels, int64_t begin, int64_t end) {
  const auto threads = (end - begin + kVec - 1) / kVec;
  return fusegen::launch(copy_vectors<T, kVec>, dim3(1), dim3(unsigned(threads)), 0, nullptr,
                         static_cast<const T*>(from), static_cast<T*>(to), rows, channels, begin, end);
}

extern "C" int copy(int vector, const void* from, void* to, int64_t rows, int64_t channels, int64_t begin,
                    int64_t end, int64_t bytes) {
  if (vector == 8 && bytes == 2) return copied<__nv_bfloat16, 8>(from, to, rows, channels, begin, end);
  if (vector == 8) return copied<float, 8>(from, to, rows, channels, begin, end);
  if (vector == 4) return copied<float, 4>(from, to, rows, channels, begin, end);
  return copied<double, 2>(from, to, rows, channels, begin, end);
}
"""
# As autocast has them, eight of float32 too.
TYPES = [(8, torch.bfloat16), (8, torch.float32), (4, torch.float32), (2, torch.float64)]


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache) -> EmulatedLibrary:
    return compiled_shapes(SOURCE, tmp_path_factory.mktemp("unaligned"), emulation_cache, checked=True)


@pytest.mark.parametrize("vector, dtype", TYPES)
@pytest.mark.parametrize("ahead", [(0, 0), (1, 0), (0, 1), (3, 2)], ids=str)
def test_vectors_begin_and_end_anywhere(library, vector, dtype, ahead):
    """In rows of every length, from every column on; the tensors begin so many elements after a vector. All that is
    read lies in the tensor, and nothing else is written."""
    for channels in range(1, 2 * vector + 4):
        for begin in range(min(channels, vector + 2)):
            for end in {begin + 1, min(begin + vector, channels), channels - 1, channels} - set(range(begin + 1)):
                offsets = [elements * dtype.itemsize % 16 for elements in ahead]
                values = torch.randn(3, channels).to(dtype)
                given = Buffer.from_tensor(values, offset_bytes=offsets[0], readonly=True)
                found = Buffer.poisoned([3, channels], dtype, offset_bytes=offsets[1])
                poison = found.tensor()
                library.call("copy", vector, given, found, 3, channels, begin, end, dtype.itemsize)
                poison[:, begin:end] = values[:, begin:end]
                integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
                assert torch.equal(found.tensor().view(integers), poison.view(integers)), (channels, begin, end)
                assert not found.damage()
