"""Launch shapes of the pointwise kernels, as the emitted launchers compute them."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/shapes.cuh"

extern "C" int shape(int vector, int64_t* found, int64_t rows, int64_t channels, int64_t packed, int64_t work,
                     int64_t blocks) {
  fusegen::Shapes shapes;
  shapes.pointwise_blocks = blocks;
  const fusegen::PointwiseShape shape = fusegen::pointwise_shape(
      shapes, rows, channels, vector, packed != 0, fusegen::PointwiseWork(work), 132);
  const int64_t values[] = {shape.grid.x, shape.grid.y, shape.block.x, shape.block.y, shape.tiles,
                            shape.tiles_per_block, shape.period};
  for (int i = 0; i < 7; ++i) found[i] = values[i];
  return cudaGetLastError();
}
"""
FIELDS = ("across", "down", "width", "height", "tiles", "tiles_per_block", "period")
STORES, SUM, SUMS = WORK = range(3)  # enum class PointwiseWork
ROWS = (1, 2, 3, 7, 8, 33, 1000, 65_537, 1_000_000)
CHANNELS = (1, 2, 3, 7, 8, 9, 12, 33, 129, 132, 1025, 8192, 65_537)


@pytest.fixture(scope="module")
def shape(tmp_path_factory, emulation_cache):
    library = compiled_shapes(SOURCE, tmp_path_factory.mktemp("shapes"), emulation_cache)
    found = Buffer.poisoned([len(FIELDS)], torch.int64)

    def shape(rows, channels, vector, packed, work=STORES, blocks=0):
        library.call("shape", vector, found, rows, channels, int(packed), work, blocks)
        return dict(zip(FIELDS, found.tensor().tolist(), strict=True))

    return shape


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("vector", [2, 4, 8])
def test_every_shape_covers_the_tensor(shape, vector, packed, work):
    for rows in ROWS:
        for channels in CHANNELS:
            if packed and channels % vector:
                continue
            found = shape(rows, channels, vector, packed, work)
            threads = found["width"] * found["height"]
            assert threads % 32 == 0 and threads <= 256
            assert found["width"] <= 32 and found["width"] & (found["width"] - 1) == 0
            # Lines are whole vectors, and as many as the rows need.
            length = found["period"] * channels
            assert length % vector == 0 and found["tiles"] == -(-rows // found["period"])
            vectors = length // vector
            assert found["across"] * found["width"] >= vectors > (found["across"] - 1) * found["width"]
            covered = found["down"] * found["tiles_per_block"]
            assert covered >= found["tiles"] > covered - found["tiles_per_block"]
            assert found["tiles_per_block"] % found["height"] == 0 and found["down"] <= 65_535


@pytest.mark.parametrize("vector", [2, 4, 8])
def test_a_line_is_a_row_or_ends_with_a_vector(shape, vector):
    for channels in CHANNELS:
        assert channels % vector or shape(1000, channels, vector, True)["period"] == 1
        few = shape(1000, channels, vector, False, SUMS)["period"]
        # With column sums no more rows than that takes: each of them has partial results of its own.
        assert few * channels % vector == 0 and all(rows * channels % vector for rows in range(1, few))
        assert shape(1000, channels, vector, False)["period"] % few == 0


@pytest.mark.parametrize("vector", [4, 8])
def test_lines_leave_few_threads_without_a_vector(shape, vector):
    """Of few channels a line has several times as many rows, where there are no column sums."""
    for channels in range(1, 33):
        found = shape(1_000_000, channels, vector, False)
        used = found["period"] * channels / vector / (found["across"] * found["width"])
        assert used >= 0.75, channels


def test_few_lines_have_low_blocks(shape):
    assert [shape(rows, 65_536, 4, True)["height"] for rows in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, 8]


def blocks(found):
    return found["across"] * found["down"]


def test_stores_have_eight_lines_a_thread_or_four_where_blocks_are_few(shape):
    lines = {rows: shape(rows, 4096, 4, True)["tiles_per_block"] for rows in (100_000, 10_000, 4_000, 100)}
    assert lines == {100_000: 64, 10_000: 64, 4_000: 64, 100: 32}
    assert blocks(shape(2_100, 4096, 4, True)) >= 16 * 132


def test_sums_leave_few_partial_results(shape):
    """As many as blocks run at a time, or as asked for; with four lines a thread at least."""
    found = [blocks(shape(100_000, 4096, 4, True, work)) for work in (SUM, SUMS)]
    assert [round(each / 132) for each in found] == [4, 8]
    asked = [blocks(shape(100_000, 4096, 4, True, work, 16)) for work in WORK]
    assert asked[STORES] == blocks(shape(100_000, 4096, 4, True)) and asked[SUM] == asked[SUMS] == 32 * 66
    assert shape(100, 4096, 4, True, SUMS)["tiles_per_block"] == 32
