"""Launch shapes of the column kernels, as the emitted launchers compute them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from fusegen.emulate import Buffer, compile_kernels

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """
#include "../support/shapes.cuh"

extern "C" int shape(int vector, int64_t* found, int64_t rows, int64_t channels, int64_t element, int64_t narrowest,
                     int64_t limit, int64_t most_cluster) {
  const fusegen::TileBytes bytes{element, narrowest, 8, 8};
  const fusegen::Column tile = fusegen::column_shape(rows, channels, vector, bytes, limit, int(most_cluster));
  const int64_t values[] = {tile.fits, tile.grid.x, tile.grid.y, tile.block.x, tile.block.y, tile.rows_per_block,
                            int64_t(tile.shared_bytes)};
  for (int i = 0; i < 7; ++i) found[i] = values[i];
  return cudaGetLastError();
}
"""
LIMIT = 227 * 1024
"""Bytes of shared memory of a block on sm_90."""


@pytest.fixture(scope="module")
def shape(tmp_path_factory):
    root = tmp_path_factory.mktemp("shapes")
    (root / "support").mkdir()
    shutil.copy(ROOT / "templates/support/shapes.cuh", root / "support")
    (root / "shapes").mkdir()
    (root / "shapes" / "kernels.cu").write_text(SOURCE)
    library = compile_kernels(root / "shapes" / "kernels.cu", cache=root / "cache", checked=False)

    def shape(rows, channels, vector=4, element=4, narrowest=4, limit=LIMIT, most_cluster=8):
        found = Buffer.poisoned([7], torch.int64)
        library.call("shape", vector, found, rows, channels, element, narrowest, limit, most_cluster)
        names = ("fits", "across", "cluster", "width", "height", "rows_per_block", "bytes")
        return dict(zip(names, found.tensor().tolist(), strict=True))

    return shape


@pytest.mark.parametrize("most_cluster", [1, 2, 8])
@pytest.mark.parametrize("vector, element, narrowest", [(4, 4, 4), (4, 8, 4), (8, 2, 2), (4, 6, 2), (1, 2, 2)])
def test_every_shape_covers_the_tensor_and_fits(shape, vector, element, narrowest, most_cluster):
    for rows in (1, 2, 5, 16, 33, 100, 1000, 5000, 16384, 30000, 200000):
        for channels in (1, 3, 40, 4096):
            tile = shape(rows, channels * vector, vector, element, narrowest, most_cluster=most_cluster)
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


def test_clusters_only_where_one_block_is_too_small(shape):
    """Two blocks of 64 bytes a row fit a multiprocessor up to there."""
    assert [shape(rows, 4096)["cluster"] for rows in (1024, 1760, 2048, 4096, 8192)] == [1, 1, 2, 4, 8]
    assert shape(16384, 4096) == {
        "fits": 1, "across": 512, "cluster": 8, "width": 2, "height": 256, "rows_per_block": 2048, "bytes": 67136,
    }  # fmt: skip
    assert shape(16384, 4096, element=8)["cluster"] == 8  # with one block a multiprocessor
    assert not shape(16384, 4096, most_cluster=1)["fits"]


def test_few_rows_have_low_blocks_and_wide_tiles(shape):
    assert [(tile["width"], tile["height"]) for tile in (shape(rows, 4096) for rows in (1, 4, 5, 16, 64))] == [
        (32, 1), (32, 4), (32, 4), (32, 16), (16, 32),
    ]  # fmt: skip
    assert (shape(1, 8)["width"], shape(1, 8)["height"]) == (2, 16)
