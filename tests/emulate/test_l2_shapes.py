"""Launch shapes of kernels whose tiles stay in the L2, as the emitted launchers compute them."""

from __future__ import annotations

import pytest
import torch

from fusegen.emulate import Buffer
from fusegen.plan.launches.shapes import SCHEDULES
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/kernels/schedule_list.cuh"
#include "../support/l2_shapes.cuh"

extern "C" int shape(int vector, int64_t* found, double* times, int64_t rows, int64_t channels, int64_t bytes,
                     int64_t again, int64_t kept, int64_t packed, int64_t schedule, int64_t lag, int64_t l2_bytes) {
  const fusegen::ColumnWork work{bytes, bytes, 8, 8, int(again) + 1, int(again), kept};
  fusegen::Shapes shapes;
  shapes.l2_lag = lag;
  const fusegen::L2Shape shape = fusegen::l2_shape(shapes, rows, channels, vector, packed, work, l2_bytes);
  times[0] = fusegen::l2_microseconds(rows, channels, work);
  times[1] = fusegen::two_pass_microseconds(rows, channels, work);
  const fusegen::Candidate candidates[] = {
      {fusegen::kPersistent, fusegen::kPersistentIfItFits, false, false, 0},
      {fusegen::kL2, fusegen::kL2IfItFits, shape.fits, shape.stays, times[0]},
      {fusegen::kTwoPass, fusegen::kTwoPass, true, true, times[1]}};
  const bool chosen = fusegen::choose_schedule(schedule, candidates).place == 1;
  const int64_t values[] = {chosen, shape.grid.x, shape.block.x, shape.block.y, shape.tiles, shape.slices,
                            shape.lag};
  for (int i = 0; i < 7; ++i) found[i] = values[i];
  return cudaGetLastError();
}
"""
L2 = 50 << 20


@pytest.fixture(scope="module")
def shape(tmp_path_factory, emulation_cache):
    library = compiled_shapes(SOURCE, tmp_path_factory.mktemp("shapes"), emulation_cache)

    def shape(
        rows, channels, vector=4, bytes=4, again=1, kept=None, packed=True, schedule="automatic", lag=0, l2=L2
    ):  # fmt: skip
        found, times = Buffer.poisoned([7], torch.int64), Buffer.poisoned([2], torch.float64)
        kept = again * bytes if kept is None else kept
        sizes = (rows, channels, bytes, again, kept, packed, SCHEDULES.index(schedule), lag, l2)
        library.call("shape", vector, found, times, *map(int, sizes))
        names = ("chosen", "blocks", "width", "height", "tiles", "slices", "lag", "time", "two_pass")
        return dict(zip(names, (*found.tensor().tolist(), *times.tensor().tolist()), strict=True))

    return shape


@pytest.mark.parametrize(("vector", "bytes"), [(4, 4), (8, 2), (4, 2), (2, 8)])
def test_a_row_of_a_tile_fills_a_line_and_every_column_is_in_one(shape, vector, bytes):
    for rows, channels in ((1, vector), (256, 4096), (257, 4096), (100_000, 1000 * vector)):
        found = shape(rows, channels, vector, bytes, schedule="l2")
        assert found["chosen"] and found["width"] * found["height"] == 256
        columns = found["width"] * vector
        assert columns * bytes == 128
        assert (found["tiles"] - 1) * columns < channels <= found["tiles"] * columns
        assert (found["slices"] - 1) * 256 < rows <= found["slices"] * 256


def test_every_step_has_its_blocks(shape):
    """The last results are as many steps behind the last sums as the lag says."""
    found = shape(1000, 320, schedule="l2", lag=3)
    assert (found["tiles"], found["slices"], found["lag"]) == (10, 4, 3)
    assert found["blocks"] == (10 + 3) * (4 + 2 * 4)  # four of each step end the sums of some columns


def test_what_is_read_again_takes_a_third_of_the_l2(shape):
    def lags(again, l2=L2):
        return [shape(rows, 65536, again=again, l2=l2)["lag"] for rows in (4096, 8192, 16384, 32768, 65536)]

    assert lags(1) == [33, 17, 8, 4, 2] and lags(2) == [17, 8, 4, 2, 1]
    assert lags(1, l2=2 * L2) == [67, 33, 17, 8, 4]
    # Of two tensors one is float32 beside 16 bits.
    mixed = {"vector": 4, "bytes": 2, "again": 2, "kept": 6}
    assert [shape(rows, 65536, **mixed)["lag"] for rows in (8192, 16384)] == [6, 3]
    assert shape(10_000_000, 65536, schedule="l2")["lag"] == 1
    assert shape(8192, 64, schedule="l2")["lag"] == 2, "no more than there are tiles"
    assert [shape(8192, 65536, schedule="l2", lag=lag)["lag"] for lag in (1, 8)] == [1, 8]


def chosen(shape, rows, channels, **others):
    return bool(shape(rows, channels, **others)["chosen"])


def test_the_sizes_decide(shape):
    assert [chosen(shape, rows, 4096) for rows in (64, 1024, 4096, 16384, 65536)] == [False, False, True, True, True]
    assert not chosen(shape, 16384, 4096, packed=False)
    assert [chosen(shape, 16384, 4096 + more) for more in (4, 16, 32)] == [False, False, True], "rows fill lines"
    # What is read has to stay until it is read again: two tiles, or everything.
    assert [chosen(shape, 131072, channels, again=again) for channels, again in ((32, 1), (64, 1), (1024, 1))] == [
        True, False, False
    ]  # fmt: skip
    assert [chosen(shape, rows, 4096, again=2) for rows in (32768, 65536)] == [True, False]
    mixed = {"vector": 4, "bytes": 2, "again": 2, "kept": 6}
    assert [chosen(shape, rows, 65536, **mixed) for rows in (16384, 32768)] == [True, False]
    for rows, channels in ((16384, 4096), (256, 256)):
        found = shape(rows, channels)
        assert bool(found["chosen"]) == (found["time"] < found["two_pass"])


def test_what_is_asked_for(shape):
    assert not chosen(shape, 16384, 4096, schedule="two_pass") and not chosen(shape, 16384, 4096, schedule="persistent")
    assert chosen(shape, 16384, 4096, schedule="persistent_if_it_fits"), "else what suits the sizes"
    assert chosen(shape, 5, 12, schedule="l2")
    assert not chosen(shape, 5, 12, schedule="l2", packed=False)
    assert not chosen(shape, 1 << 24, 1 << 20, schedule="l2"), "more blocks than a grid has"
    assert not chosen(shape, 64, 4096) and chosen(shape, 64, 4096, schedule="l2_if_it_fits")
    for rows, channels, others in ((64, 4100, {}), (1 << 20, 4096, {}), (64, 4096, {"packed": False})):
        assert not chosen(shape, rows, channels, schedule="l2_if_it_fits", **others)
