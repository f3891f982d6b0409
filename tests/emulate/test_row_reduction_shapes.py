"""How many blocks, and lanes of them, a launcher has share a segment that is read twice."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/shapes.cuh"

extern "C" int shape(int cluster, int64_t* found, int64_t rows, int64_t groups, int64_t length, int64_t asked) {
  fusegen::Shapes shapes;
  shapes.row_reduction_blocks = asked;
  const dim3 grid = fusegen::row_reduction_grid(shapes, rows, rows, groups, length, 2048, cluster, 132);
  found[0] = grid.x;
  found[1] = grid.y;
  found[2] = grid.z;
  return cudaGetLastError();
}

extern "C" int lanes(int vector, int packed, int blocks, int64_t* found, int64_t length) {
  *found = fusegen::row_reduction_lanes(length, vector, packed != 0, blocks, 256);
  return cudaGetLastError();
}
"""
LONG = 8 * 2048


@pytest.fixture(scope="module")
def library(tmp_path_factory, emulation_cache):
    return compiled_shapes(SOURCE, tmp_path_factory.mktemp("shapes"), emulation_cache)


@pytest.fixture(scope="module")
def grid(library):
    found = Buffer.poisoned([3], torch.int64)

    def grid(rows, groups, length, asked=0, cluster=8):
        library.call("shape", cluster, found, rows, groups, length, asked)
        return tuple(found.tensor().tolist())

    return grid


def test_few_long_segments_have_as_many_blocks_as_there_is_room_for(grid):
    """Of clusters of more than two blocks 7/8 of the multiprocessors have some, four at most."""
    blocks = [grid(rows, 1, LONG)[2] for rows in (1, 58, 59, 116, 117, 264, 265, 100_000)]
    assert blocks == [8, 8, 4, 4, 2, 2, 1, 1]
    assert grid(7, 9, LONG) == (63, 1, 4)


def test_each_block_has_a_turn_of_its_own(grid):
    lengths = (1, 4 * 2048 - 1, 4 * 2048, LONG - 1, LONG)
    assert [grid(1, 1, length)[2] for length in lengths] == [1, 1, 4, 4, 8]
    assert [grid(200, 1, length)[2] for length in lengths] == [1, 1, 2, 2, 2]


def test_no_more_than_the_device_has_in_a_cluster(grid):
    assert grid(1, 1, LONG, cluster=1)[2] == 1 and grid(1, 1, LONG, cluster=4)[2] == 4
    assert [grid(1000, 1, 1, asked=asked)[2] for asked in (1, 4, 8)] == [1, 4, 8]
    assert grid(1000, 1, 1, asked=8, cluster=1)[2] == 1


def test_a_grid_is_as_long_as_it_may_be(grid):
    assert grid(2**31, 2, LONG)[:2] == (2**31 - 1, 1)


def test_a_short_segment_has_as_many_lanes_as_vectors(library):
    found = Buffer.poisoned([1], torch.int64)

    def lanes(length, vector, *, packed=True, blocks=1):
        library.call("lanes", vector, packed, blocks, found, length)
        return found.tensor().item()

    assert [lanes(length, 4) for length in (4, 8, 12, 16, 20, 64, 68, 128, 132, 1024)] == [
        1, 2, 4, 4, 8, 16, 32, 32, 256, 256,
    ]  # fmt: skip
    assert [lanes(length, 1) for length in (1, 2, 3, 32, 33)] == [1, 2, 4, 32, 256]
    # One that begins within a vector may have parts of one more.
    assert [lanes(length, 4, packed=False) for length in (1, 2, 5, 6, 13, 125, 126)] == [1, 2, 2, 4, 4, 32, 256]
    assert lanes(16, 4, blocks=2) == 256
