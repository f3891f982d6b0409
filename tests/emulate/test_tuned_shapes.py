"""For which sizes a line of a table of launch shapes holds."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/launch.cuh"
#include "../support/tuning.cuh"

extern "C" int blocks(int mode, int64_t* found, int64_t rows, int64_t channels, int64_t length) {
  using namespace fusegen;
  constexpr Tuned kTable[] = {
      {80, modes(0, 1), kAnyRows, 1024, 32, {kTwoPass, 4}},
      {90, modes(0), 100, 1024, 32, {kTwoPass, 16}},
      {90, modes(0), kAnyRows, 1024, 32, {kTwoPass, 32}},
  };
  *found = tuned_shapes(kTable, compute_capability(), mode, rows, channels, length).pointwise_blocks;
  return cudaGetLastError();
}
"""
DEFAULT = 0


@pytest.fixture(scope="module")
def blocks(tmp_path_factory, emulation_cache):
    library = compiled_shapes(SOURCE, tmp_path_factory.mktemp("tuned"), emulation_cache)
    found = Buffer.poisoned([1], torch.int64)

    def blocks(rows, channels, length, mode=0):
        library.call("blocks", mode, found, rows, channels, length)
        return int(found.tensor().item())

    return blocks


@pytest.mark.parametrize(("rows", "expected"), [(1, 16), (100, 16), (101, 32), (1 << 40, 32)])
def test_the_first_line_with_so_many_rows(blocks, rows, expected):
    assert blocks(rows, 1024, 32) == expected


@pytest.mark.parametrize("size, holds", [(511, False), (512, True), (2048, True), (2049, False)])
def test_channels_about_those_that_were_measured(blocks, size, holds):
    assert blocks(1, size, 32) == (16 if holds else DEFAULT)


@pytest.mark.parametrize("length, holds", [(15, False), (16, True), (64, True), (65, False), (1024, False)])
def test_groups_about_as_long_as_those_that_were_measured(blocks, length, holds):
    assert blocks(1, 1024, length) == (16 if holds else DEFAULT)


@pytest.mark.parametrize("length, holds", [(31, False), (33, False), (36, False), (40, True), (24, True)])
def test_only_groups_with_vectors_as_those_that_were_measured(blocks, length, holds):
    assert blocks(1, 1024, length) == (16 if holds else DEFAULT)


def test_a_mode_that_was_measured_on_another_gpu_only(blocks):
    assert blocks(1, 1024, 32, mode=1) == DEFAULT
