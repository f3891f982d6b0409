"""How rows that are too long for registers are divided among blocks and threads."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/row_shared_shapes.cuh"

extern "C" int shape(int cluster, int64_t* found, int64_t rows, int64_t vectors, int64_t bytes, int64_t shared_bytes) {
  const fusegen::Target target{90, 132, shared_bytes, 0, cluster};
  const fusegen::RowShared row = fusegen::row_shared_shape(rows, vectors, bytes, 400, target);
  const int64_t fields[] = {row.threads, row.vectors, row.cluster, row.resident, row.bytes};
  std::copy(fields, fields + 5, found);
  if (row.threads > 0) {
    found[5] = fusegen::row_shared_at_once(row, target);
  }
  return cudaGetLastError();
}

extern "C" int blocks(int period, int64_t* found, int64_t rows, int64_t most) {
  found[0] = fusegen::row_shared_blocks(rows, most, period);
  return cudaGetLastError();
}
"""
H100 = 227 * 1024
KEYS = "threads", "vectors", "cluster", "resident", "bytes", "at_once"


class RowSharedShapes:
    def __init__(self, library) -> None:
        self.library, self.found = library, Buffer.poisoned([6], torch.int64)

    def __call__(self, rows: int, vectors: int, bytes_: int = 16, shared_bytes: int = H100, cluster: int = 8) -> dict:
        self.library.call("shape", cluster, self.found, rows, vectors, bytes_, shared_bytes)
        return dict(zip(KEYS, self.found.tensor().tolist(), strict=True))

    def blocks(self, rows: int, most: int, period: int) -> int:
        self.library.call("blocks", period, self.found, rows, most)
        return self.found.tensor().tolist()[0]


@pytest.fixture(scope="module")
def shape(tmp_path_factory, emulation_cache):
    return RowSharedShapes(compiled_shapes(SOURCE, tmp_path_factory.mktemp("shapes"), emulation_cache))


@pytest.mark.parametrize("cluster, shared_bytes", [(8, H100), (1, 163 * 1024), (8, 20000)])
@pytest.mark.parametrize("bytes_", [16, 32, 112])
def test_what_is_launched_can_be(shape, bytes_, cluster, shared_bytes) -> None:
    fitted = 0
    for rows in (1, 5, 70, 100_000):
        for vectors in (1, 33, 1000, 1025, 4096, 4097, 6283, 16032, 32064, 64129):
            row = shape(rows, vectors, bytes_, shared_bytes, cluster)
            if row["threads"] == 0:
                assert vectors * bytes_ + 400 * cluster > (shared_bytes - 31 * bytes_ - 1024 * bytes_) * cluster
                continue
            fitted += 1
            assert row["cluster"] <= cluster and row["cluster"] in (1, 2, 4, 8)
            assert row["threads"] % 32 == 0 and 0 < row["threads"] * row["resident"] <= 1024
            assert row["threads"] * row["vectors"] * row["cluster"] >= vectors
            assert row["bytes"] == 400 + row["threads"] * row["vectors"] * bytes_ <= shared_bytes
            assert row["resident"] * (row["bytes"] + 1024) <= shared_bytes + 1024
            assert 1 <= row["at_once"] <= 132 * row["resident"] / row["cluster"]
    assert fitted >= 12


def test_as_few_blocks_share_a_row_as_leave_room_for_two(shape) -> None:
    """Of softmax in 16 bits, and of float32 with twice the vectors: 32000, 50257, 65536 and 128256 elements."""

    def launch(vectors, **target):
        row = shape(100_000, vectors, **target)
        return row["cluster"], row["resident"], row["threads"], row["vectors"]

    assert launch(2100) == (1, 4, 256, 9) and launch(4000) == (1, 3, 320, 13) and launch(6284) == (1, 2, 512, 13)
    assert launch(8192) == (2, 3, 320, 13) and launch(16032) == (4, 3, 320, 13) and launch(32064) == (8, 3, 320, 13)
    # Two tensors, and beyond clusters: a block at a time, then none.
    assert launch(32064, bytes_=32) == (8, 1, 1024, 4)
    assert shape(100_000, 32064, 80)["threads"] == shape(100_000, 16384, 16, cluster=1)["threads"] == 0
    assert launch(8192, cluster=1) == (1, 1, 1024, 8)


def test_few_rows_have_more_blocks(shape) -> None:
    clusters = [shape(rows, 8192)["cluster"] for rows in (1, 14, 15, 29, 30, 1000)]
    assert clusters == [8, 8, 4, 4, 2, 2]
    assert [shape(1, vectors)["cluster"] for vectors in (2047, 2048, 4096, 8191, 8192)] == [1, 2, 4, 4, 8]


def test_blocks_have_as_many_rows_each(shape) -> None:
    assert [shape.blocks(rows, 264, 1) for rows in (1, 263, 264, 265, 529, 8192)] == [1, 263, 264, 133, 177, 256]
    # Whose rows begin at the same place in a vector.
    assert [shape.blocks(rows, 264, 8) for rows in (1, 9, 265, 8192)] == [8, 16, 136, 256]
    assert shape.blocks(100, 3, 8) == 8
