"""Launch shapes of the column kernels, as the emitted launchers compute them."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from fusegen.plan.launches.kinds import TUNABLES
from fusegen.plan.launches.shapes import SCHEDULES
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/column_shapes.cuh"
#include "../support/kernels/schedule_list.cuh"
#include "../support/l2_shapes.cuh"

extern "C" int shape(int vector, int64_t* found, double* times, int64_t rows, int64_t channels, int64_t element,
                     int64_t narrowest, int64_t limit, int64_t most_cluster, int64_t packed, int64_t kept,
                     int64_t schedule, int64_t width, int64_t cluster) {
  const fusegen::ColumnWork work{element, narrowest, 8, 8, 3, 2, kept};
  fusegen::Shapes shapes;
  shapes.column_threads_per_row = width;
  shapes.column_cluster = cluster;
  const fusegen::Column tile = fusegen::column_shape(
      shapes, rows, channels, vector, packed, work, {90, 132, limit, 50 << 20, int(most_cluster)});
  times[0] = tile.microseconds;
  times[1] = fusegen::two_pass_microseconds(rows, channels, work);
  const fusegen::L2Shape l2 = fusegen::l2_shape(shapes, rows, channels, vector, packed, work, 50 << 20);
  const fusegen::Candidate candidates[] = {
      {fusegen::kPersistent, fusegen::kPersistentIfItFits, tile.fits, tile.fits, times[0]},
      {fusegen::kL2, fusegen::kL2IfItFits, kept > 0 && l2.fits, kept > 0 && l2.stays,
       fusegen::l2_microseconds(rows, channels, work)},
      {fusegen::kTwoPass, fusegen::kTwoPass, true, true, times[1]}};
  const bool chosen = fusegen::choose_schedule(schedule, candidates).place == 0;
  const int64_t values[] = {chosen, tile.grid.x, tile.grid.z, tile.block.x, tile.block.y, tile.rows_per_block,
                            int64_t(tile.shared_bytes)};
  for (int i = 0; i < 7; ++i) found[i] = values[i];
  return cudaGetLastError();
}
"""
LIMIT = 227 * 1024
"""Bytes of shared memory of a block on sm_90."""

# Rows and channels, in vectors, of all kinds.
SIZES = [
    (rows, vectors)
    for rows in (1, 2, 5, 16, 33, 100, 1000, 2048, 5000, 16384, 30000, 200000)
    for vectors in (1, 3, 40, 1000, 4096)
]
# vector, element, narrowest, packed
KINDS = [(4, 4, 4, True), (4, 8, 4, True), (8, 2, 2, True), (4, 6, 2, False)]


@pytest.fixture(scope="module")
def shape(tmp_path_factory, emulation_cache):
    library = compiled_shapes(SOURCE, tmp_path_factory.mktemp("shapes"), emulation_cache)

    def shape(
        rows, channels, vector=4, element=4, narrowest=4, packed=True, most_cluster=8, schedule="automatic", width=0,
        cluster=0, kept=0,
    ):  # fmt: skip
        found, times = Buffer.poisoned([7], torch.int64), Buffer.poisoned([2], torch.float64)
        sizes = (rows, channels, element, narrowest, LIMIT, most_cluster, packed, kept, SCHEDULES.index(schedule))
        library.call("shape", vector, found, times, *map(int, sizes), width, cluster)
        names = ("chosen", "across", "cluster", "width", "height", "rows_per_block", "bytes", "time", "two_pass")
        return dict(zip(names, (*found.tensor().tolist(), *times.tensor().tolist()), strict=True))

    return shape


@pytest.mark.parametrize("schedule", ["automatic", "persistent"])
@pytest.mark.parametrize("most_cluster", [1, 2, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_covers_the_tensor_and_fits(shape, kind, most_cluster, schedule):
    vector, element, *_ = kind
    for rows, channels in SIZES:
        tile = shape(rows, channels * vector, *kind, most_cluster, schedule)
        if not tile["chosen"]:
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
        shown = tile["cluster"] + 1 if tile["cluster"] > 1 else 0  # by each block, and collected from all
        assert held + (threads // 32 + shown) * tile["width"] * vector * 8 <= tile["bytes"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_for_is_what_comes(shape, kind):
    for rows, channels in SIZES:
        for width in TUNABLES["column_threads_per_row"].values:
            for cluster in TUNABLES["column_cluster"].values:
                tile = shape(rows, channels * kind[0], *kind, 8, "persistent", width, cluster)
                if tile["chosen"]:
                    assert width in (0, tile["width"]) and cluster in (0, tile["cluster"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_sizes_choose_the_fastest_by_the_estimate(shape, kind):
    """Of all tiles that can be asked for, clusters of too few rows apart, and of the two-pass schedule."""
    chosen = set()
    for rows, channels in SIZES:
        sizes = (rows, channels * kind[0], *kind, 8)
        tile = shape(*sizes)
        asked = [
            shape(*sizes, "persistent", width, cluster)
            for width in (2, 4, 8, 16, 32)
            for cluster in (1, 2, 4, 8)
            if cluster == 1 or rows >= 96 * cluster
        ]
        fastest = min([each["time"] for each in asked if each["chosen"]], default=float("inf"))
        assert tile["chosen"] == (fastest < tile["two_pass"])
        assert not tile["chosen"] or tile["time"] == fastest
        chosen.add((tile["chosen"], bool(tile["chosen"]) and tile["cluster"] > 1))
    assert chosen == {(0, False), (1, False), (1, True)}


def clusters(tiles):
    """0 where a size is left to the two-pass schedule."""
    return [tile["cluster"] if tile["chosen"] else 0 for tile in tiles]


def test_many_rows_are_left_to_the_split_schedule(shape):
    """But what is asked for is tried as far as clusters go."""
    backward = [shape(rows, 8192, element=8) for rows in (512, 2048, 4096, 16384)]
    assert clusters(backward) == [1, 8, 8, 0]
    assert clusters(shape(rows, 8192, element=8, most_cluster=1) for rows in (512, 2048, 4096)) == [1, 1, 0]
    asked = [shape(rows, 4096, schedule="persistent") for rows in (1024, 16384, 65536)]
    assert [tile["chosen"] for tile in asked] == [1, 1, 0]
    assert shape(16384, 4096, schedule="persistent_if_it_fits") == asked[1]
    assert not shape(16384, 4096, schedule="persistent", most_cluster=1)["chosen"]
    assert shape(70, 64, schedule="persistent", cluster=8)["cluster"] == 8


def test_where_the_l2_schedule_is_faster_there_is_no_column_tile(shape):
    """Of 8192 rows a cluster has room for narrow tiles only. But L2-resident are rows that fill lines of the L2."""
    backward = {"element": 8, "kept": 8}
    assert clusters(shape(rows, 8192, **backward) for rows in (512, 2048, 8192, 16384)) == [1, 8, 0, 0]
    assert clusters([shape(8192, 8192, element=8), shape(8192, 8208, **backward)]) == [8, 8]
    assert shape(8192, 8192, schedule="persistent", **backward) == shape(8192, 8192, element=8)
    for schedule in ("l2", "two_pass"):
        assert not shape(64, 1024, schedule=schedule)["chosen"]
    asked = {"schedule": "l2_if_it_fits", **backward}
    assert not shape(64, 1024, **asked)["chosen"]
    for rows, channels in ((64, 1028), (1 << 20, 1024)):
        assert shape(rows, channels, **asked) == shape(rows, channels, **backward), "what suits where they do not fit"


def test_few_tiles_are_shared_by_clusters(shape):
    assert clusters(shape(rows, 256) for rows in (300, 4096)) == [1, 8]
    assert clusters(shape(4096, 256, most_cluster=most) for most in (1, 2, 4)) == [0, 2, 4]


def test_columns_that_are_not_packed_have_wider_tiles(shape):
    assert (shape(1024, 4096)["width"], shape(1024, 4096, packed=False)["width"]) == (8, 16)


def test_few_rows_have_low_blocks_and_wide_tiles(shape):
    tiles = [shape(rows, 65536) for rows in (1, 4, 5, 16)]
    assert [(tile["width"], tile["height"]) for tile in tiles] == [(32, 1), (16, 2), (16, 2), (32, 2)]
    assert (shape(1, 8)["width"], shape(1, 8)["height"]) == (2, 16)


def test_few_rows_have_small_blocks(shape):
    """Sums over a block take longer, the more threads there are."""
    threads = [tile["width"] * tile["height"] for tile in (shape(rows, 1024) for rows in (64, 512, 4096))]
    assert threads == [64, 256, 512]


def test_rows_that_begin_within_a_sector_take_longer(shape):
    """Of 32 bytes: 8196 float32 are no multiple of it, 8200 are. As many tiles either way."""
    asked = {"schedule": "persistent", "width": 8, "cluster": 1}
    within, whole = shape(1024, 8196, **asked), shape(1024, 8200, **asked)
    assert within["across"] == whole["across"] and within["bytes"] == whole["bytes"]
    assert within["time"] > 1.05 * whole["time"]
    odd = [shape(1024, channels, packed=False, **asked) for channels in (8195, 8199)]  # single elements anyway
    assert odd[0]["time"] == odd[1]["time"]


def test_rows_of_half_a_sector_are_not_chosen(shape):
    """Two vectors of four elements of 16 bits: memory would move the other half for nothing."""
    for rows, channels in ((819, 5120), (2000, 1024), (2048, 4096)):
        tile = shape(rows, channels, element=6, narrowest=2)
        assert not tile["chosen"] or tile["width"] * 4 * 2 >= 32
