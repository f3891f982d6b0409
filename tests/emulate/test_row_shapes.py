"""Launch shapes of the row kernels, as the emitted launchers compute them."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/shapes.cuh"

extern "C" int shape(int vector, int64_t* found, int64_t rows, int64_t groups, int64_t length, int64_t most_items,
                     int64_t row_items, int64_t blocks) {
  fusegen::Shapes shapes;
  shapes.row_items = row_items;
  const fusegen::Row row = fusegen::row_shape(
      shapes, rows, groups, length, vector, true, int(most_items), int(blocks), 132);
  const int64_t values[] = {row.items, row.lanes, row.block.x, row.block.y, row.grid.x, row.grid.y};
  for (int i = 0; i < 6; ++i) found[i] = values[i];
  return cudaGetLastError();
}
"""


@pytest.fixture(scope="module")
def shape(tmp_path_factory):
    library = compiled_shapes(SOURCE, tmp_path_factory.mktemp("shapes"))

    def shape(rows, groups, length, vector, most_items, row_items, blocks):
        found = Buffer.poisoned([6], torch.int64)
        library.call("shape", vector, found, rows, groups, length, most_items, row_items, blocks)
        return dict(zip(("items", "lanes", "width", "height", "across", "down"), found.tensor().tolist(), strict=True))

    return shape


@pytest.mark.parametrize("blocks", [3, 4])
@pytest.mark.parametrize("row_items", [2, 4])
@pytest.mark.parametrize("vector, most_items", [(4, 8), (8, 4), (4, 2), (8, 1), (2, 8), (2, 4)])
def test_every_shape_covers_the_rows_within_the_launch_bounds(shape, vector, most_items, row_items, blocks):
    """The bounds are 256 threads with one vector each, 512 with more."""
    fitted = 0
    for length in (vector, 33 * vector, 64 * vector, 65 * vector, 2048, 2056, 4096, 8192, 16384):
        for rows, groups in ((1, 1), (3, 5), (100_000, 2)):
            row = shape(rows, groups, length, vector, most_items, row_items, blocks)
            if row["items"] == 0:
                assert length > 256 * most_items * vector
                continue
            fitted += 1
            threads = row["width"] * row["height"]
            assert threads <= (512 if row["items"] > 1 else 256)
            assert row["items"] <= most_items and row["items"] * row["lanes"] * vector >= length
            assert row["across"] * row["width"] >= groups * row["lanes"]
            assert 1 <= row["down"] <= -(-rows // row["height"])
            assert row["lanes"] <= 32 or row["height"] == 1
    assert fitted >= 12
