"""A gradient times a number on the device."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.kernels.building import compiled

SOURCE = """
#include "../support/kernels/entry.cuh"
#include "../support/kernels/scale.cuh"

FUSEGEN_SCALE_LAUNCHER(scale_of)

extern "C" int scale(int bytes, void* values, int64_t first, int64_t count, const void* factor,
                     int keeps_zeros) {
  const fusegen::Call call{0, 1, 1};
  const fusegen::Scale arguments{
      static_cast<char*>(values) + bytes * first, count, static_cast<const float*>(factor),
      bytes == 4 ? fusegen::Dtype::kFloat32 : fusegen::Dtype::kBFloat16, keeps_zeros != 0};
  return scale_of(&call, &arguments);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"), emulation_cache, checked=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("first", [0, 1, 8])
@pytest.mark.parametrize("count", [1, 7, 8, 2047, 2049, 10007])
def test_each_element_is_rounded_once(library, count, first, dtype) -> None:
    """From an aligned address on, and from others; what is in front of it stays."""
    generator = torch.Generator().manual_seed(count)
    given = torch.randn(first + count, generator=generator).to(dtype)
    for factor in (1 / 3, 1.0, -2.5):
        values, number = Buffer.from_tensor(given), Buffer.from_tensor(torch.tensor([factor]), readonly=True)
        library.call("scale", given.itemsize, values, first, count, number, first == 1)
        wanted = given.clone()
        wanted[first:] = (given[first:].float() * torch.tensor(factor)).to(dtype)
        assert torch.equal(values.tensor(), wanted)


def test_zeros_stay(library) -> None:
    """Those of rows that are ignored, whatever comes."""
    given = torch.tensor([0.0, 1.0, -0.0, -2.0] * 5)
    for factor in (torch.inf, -torch.inf, torch.nan):
        values, number = Buffer.from_tensor(given), Buffer.from_tensor(torch.tensor([factor]), readonly=True)
        library.call("scale", 4, values, 0, len(given), number, 1)
        found = values.tensor()
        assert not found[::2].any() and not found[1::2].isfinite().any()
        library.call("scale", 4, values, 0, len(given), number, 0)
        assert not values.tensor().isfinite().any()


def test_more_elements_than_blocks_have_at_a_time(library) -> None:
    given = torch.ones((1 << 14) * 256 * 8 + 9, dtype=torch.bfloat16)
    values = Buffer.from_tensor(given)
    library.call("scale", 2, values, 0, len(given), Buffer.from_tensor(torch.tensor([3.0]), readonly=True), 0)
    assert bool((values.tensor() == 3).all())
