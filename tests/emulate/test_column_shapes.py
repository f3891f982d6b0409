"""Launch shapes of the column kernels, as the emitted launchers compute them."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from fusegen.plan.shapes import SCHEDULES
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/column_shapes.cuh"

extern "C" int shape(int vector, int64_t* found, int64_t rows, int64_t channels, int64_t element, int64_t narrowest,
                     int64_t limit, int64_t most_cluster, int64_t packed, int64_t schedule, int64_t cluster) {
  const fusegen::TileBytes bytes{element, narrowest, 8, 8};
  fusegen::Shapes shapes;
  shapes.schedule = schedule;
  shapes.column_cluster = cluster;
  const fusegen::Column tile = fusegen::column_shape(
      shapes, rows, channels, vector, packed, bytes, limit, int(most_cluster), 132);
  const int64_t values[] = {tile.fits, tile.grid.x, tile.grid.z, tile.block.x, tile.block.y, tile.rows_per_block,
                            int64_t(tile.shared_bytes)};
  for (int i = 0; i < 7; ++i) found[i] = values[i];
  return cudaGetLastError();
}
"""
LIMIT = 227 * 1024
"""Bytes of shared memory of a block on sm_90."""


@pytest.fixture(scope="module")
def shape(tmp_path_factory):
    library = compiled_shapes(SOURCE, tmp_path_factory.mktemp("shapes"))

    def shape(
        rows, channels, vector=4, element=4, narrowest=4, most_cluster=8, packed=True, schedule="automatic", cluster=1
    ):
        found = Buffer.poisoned([7], torch.int64)
        sizes = (rows, channels, element, narrowest, LIMIT, most_cluster, packed, SCHEDULES.index(schedule), cluster)
        library.call("shape", vector, found, *map(int, sizes))
        names = ("fits", "across", "cluster", "width", "height", "rows_per_block", "bytes")
        return dict(zip(names, found.tensor().tolist(), strict=True))

    return shape


@pytest.mark.parametrize("schedule", ["automatic", "on_chip"])
@pytest.mark.parametrize("most_cluster", [1, 2, 8])
@pytest.mark.parametrize(
    "vector, element, narrowest, packed", [(4, 4, 4, True), (4, 8, 4, True), (8, 2, 2, True), (4, 6, 2, False)]
)
def test_every_shape_covers_the_tensor_and_fits(shape, vector, element, narrowest, packed, most_cluster, schedule):
    for rows in (1, 2, 5, 16, 33, 100, 1000, 5000, 16384, 30000, 200000):
        for channels in (1, 3, 40, 4096):
            tile = shape(rows, channels * vector, vector, element, narrowest, most_cluster, packed, schedule)
            if not tile["fits"]:
                assert rows >= 1000
                continue
            threads = tile["width"] * tile["height"]
            assert 32 <= threads <= 512 and threads & (threads - 1) == 0
            assert threads == 32 or tile["height"] <= tile["rows_per_block"]
            assert tile["cluster"] <= most_cluster and tile["cluster"] * tile["rows_per_block"] >= rows
            assert tile["across"] * tile["width"] >= channels > (tile["across"] - 1) * tile["width"]
            assert 2 <= tile["width"] <= 32 and (tile["width"] - 2) // 2 < channels
            assert tile["bytes"] <= LIMIT
            held = tile["rows_per_block"] * tile["width"] * vector * element
            assert held + threads // 32 * tile["width"] * vector * 8 <= tile["bytes"]


def clusters(tiles):
    """0 where a size is left to the split schedule."""
    return [tile["cluster"] if tile["fits"] else 0 for tile in tiles]


def test_many_rows_are_left_to_the_split_schedule(shape):
    """64 bytes a row in one block or two, up to there; what is asked for is tried as far as clusters go."""
    rows = (1024, 3500, 3700, 7000, 7300, 16384)
    assert clusters(shape(each, 4096) for each in rows) == [1, 1, 2, 2, 0, 0]
    assert clusters(shape(each, 4096, most_cluster=1) for each in rows) == [1, 1, 0, 0, 0, 0]
    assert [shape(each, 4096)["width"] for each in rows[:4]] == [4, 4, 4, 4]
    # 32 bytes a row in one block, in 16 bits, while each multiprocessor has at most two such tiles.
    narrow = [shape(4096, channels, element=2, narrowest=2) for channels in (4096, 8192)]
    assert clusters(narrow) == [1, 2] and [tile["width"] for tile in narrow] == [4, 8]
    # Two blocks share a tile while each multiprocessor has at most four of them.
    assert clusters(shape(4096, channels) for channels in (4096, 4224, 4240, 65536)) == [2, 2, 0, 0]
    # Without vectors tiles are wider, and nothing is shared.
    assert clusters(shape(each, 4096, packed=False) for each in (1700, 1800)) == [1, 0]
    assert clusters(shape(each, 128, packed=False) for each in (1700, 1800)) == [1, 0]
    asked = [shape(rows, 4096, schedule="on_chip") for rows in (1024, 2048, 16384)]
    assert [(tile["cluster"], tile["width"]) for tile in asked] == [(1, 4), (1, 2), (4, 2)]
    assert shape(16384, 4096, schedule="on_chip_if_it_fits") == asked[2]
    assert not shape(16384, 4096, schedule="on_chip", most_cluster=1)["fits"]
    assert shape(1024, 4096, schedule="on_chip", cluster=4)["cluster"] == 4


def test_few_tiles_are_shared_by_clusters(shape):
    """Until nearly half of the multiprocessors have a block, or a block has few rows."""
    found = [shape(rows, channels) for rows, channels in ((8192, 128), (2048, 128), (512, 1024), (300, 128))]
    assert [(tile["across"], tile["cluster"]) for tile in found] == [(8, 8), (8, 4), (64, 1), (8, 1)]
    # Not over more blocks than there are multiprocessors, or with so many rows that blocks are few and full.
    sizes = ((4096, 8192), (16384, 1024), (8192, 1024), (32768, 128), (65536, 8), (8192, 512))
    assert clusters(shape(*size) for size in sizes) == [0, 0, 0, 0, 0, 0]
    assert clusters(shape(*size) for size in ((8192, 256), (8192, 64))) == [8, 8]
    assert clusters(shape(2048, 128, most_cluster=most) for most in (1, 2, 4)) == [1, 2, 4]


def test_columns_that_are_not_packed_have_wider_tiles(shape):
    assert (shape(1024, 4096)["width"], shape(1024, 4096, packed=False)["width"]) == (4, 8)


def test_few_rows_have_low_blocks_and_wide_tiles(shape):
    assert [(tile["width"], tile["height"]) for tile in (shape(rows, 8192) for rows in (1, 4, 5, 16, 64))] == [
        (32, 1), (32, 4), (32, 4), (32, 16), (16, 32),
    ]  # fmt: skip
    assert (shape(1, 8)["width"], shape(1, 8)["height"]) == (2, 16)


def test_many_tiles_of_few_rows_have_small_blocks(shape):
    """Of at least 8 rows for each thread, or 16 of 2 bytes, down to 128 threads."""
    rows = (16, 32, 64, 128, 256, 512)
    assert [shape(each, 65536)["height"] * shape(each, 65536)["width"] for each in rows] == [
        128, 128, 128, 256, 512, 512,
    ]  # fmt: skip
    narrow = [shape(each, 131072, vector=8, element=2, narrowest=2) for each in rows]
    assert [tile["height"] * tile["width"] for tile in narrow] == [128, 128, 128, 128, 256, 256]
    # Not where two of them are all that a multiprocessor has.
    assert [shape(64, channels)["height"] for channels in (264 * 64, 265 * 64)] == [32, 8]


def test_many_tiles_that_fill_a_multiprocessor_each_are_left_to_the_split_schedule(shape):
    """More than four for each of 132 of 16 bits, than eight without vectors; as many as there are of float32."""
    tiles = (1056, 1057)
    narrow = [shape(2048, columns * 32, 8, 2, 2) for columns in (528, 529)]
    single = [shape(1025, columns * 32 - 1, 4, 4, 4, packed=False) for columns in tiles]
    wide = [shape(2048, columns * 16, 4, 4, 4) for columns in tiles]
    assert [[tile["fits"] for tile in each] for each in (narrow, single, wide)] == [[1, 0], [1, 0], [1, 1]]
