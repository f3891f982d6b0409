"""Launch shapes of the row kernels, as the emitted launchers compute them, and what their threads make of them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from fusegen.emulate import Buffer
from fusegen.plan.shapes import SCHEDULES
from tests.emulate.building import compiled_shapes

SOURCE = """
#include "../support/reduce.cuh"
#include "../support/row_shapes.cuh"

extern "C" int shape(int vector, int64_t* found, int64_t rows, int64_t groups, int64_t length, int64_t packed,
                     int64_t most_items, int64_t row_items, int64_t row_waves, int64_t doubles, int64_t sums,
                     int64_t blocks,
                     int64_t constants, int64_t again, int64_t before, int64_t schedule, int64_t resident) {
  fusegen::Shapes shapes;
  shapes.row_items = row_items;
  shapes.row_waves = row_waves;
  shapes.schedule = schedule;
  const fusegen::RowWork work{sums != 0, int(blocks), int(constants), int(again), before != 0};
  fusegen::Row row = fusegen::row_shape(
      shapes, work, rows, groups, length, vector, packed != 0, int(most_items), doubles != 0, 132);
  if (row.items > 0) {
    const int blocks = resident > 0 ? int(resident) : row.resident;
    fusegen::set_row_blocks(row, shapes, work, rows, groups, length, blocks, 132);
  }
  const int64_t values[] = {row.items, row.lanes, row.across, row.height, row.block.x, row.block.y,
                            row.grid.x, row.grid.y, row.step, row.large};
  for (int i = 0; i < 10; ++i) found[i] = values[i];
  return cudaGetLastError();
}

__global__ void take_seats(int lanes, int across, int height, int* found) {
  const fusegen::Seat seat = fusegen::seat_of<true>(threadIdx.x, lanes, across, height);
  const int values[] = {seat.taken, seat.row, seat.segment, seat.lane, seat.slot};
  for (int i = 0; i < 5; ++i) found[threadIdx.x * 5 + i] = values[i];
}

extern "C" int seats(int threads, int* found, int64_t lanes, int64_t across, int64_t height) {
  return fusegen::launch(take_seats, dim3(1), dim3(threads), 0, nullptr, int(lanes), int(across), int(height), found);
}
"""
FIELDS = ("items", "lanes", "across", "height", "threads", "one", "grid_x", "grid_y", "step", "large")
MULTIPROCESSORS = 132
SECTOR = 16
"""Elements of 16 bits."""

# Segments of so many vectors at most, and the least share of the threads that have one.
LEAST = ((32, 0.65), (64, 0.51), (256, 0.67), (1024, 0.80))

# Elements of a vector, whether they are neighbours, and the vectors that fit a thread.
KINDS = [
    (4, True, 8),
    (8, True, 4),
    (4, True, 2),
    (8, True, 1),
    (2, True, 8),
    (2, True, 4),
    (4, False, 2),
    (8, False, 2),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled_shapes(SOURCE, tmp_path_factory.mktemp("shapes"))


@pytest.fixture(scope="module")
def shape(library):
    found = Buffer.poisoned([len(FIELDS)], torch.int64)

    def shape(
        rows, groups, length, vector, packed, most_items, row_items=2, doubles=False, sums=True, blocks=4,
        constants=4, again=1, before=False, schedule="automatic", resident=0,
        row_waves=1,
    ):  # fmt: skip
        sizes = (
            rows, groups, length, packed, most_items, row_items, row_waves, doubles, sums, blocks, constants, again,
            before, SCHEDULES.index(schedule), resident,
        )  # fmt: skip
        library.call("shape", vector, found, *map(int, sizes))
        return dict(zip(FIELDS, found.tensor().tolist(), strict=True))

    return shape


@pytest.fixture(scope="module")
def seats(library):
    """What each thread of a block takes: whether it does, its row, segment, lane and slot."""

    def seats(threads, lanes, across, height):
        found = Buffer.poisoned([threads, 5], torch.int32)
        library.call("seats", threads, found, lanes, across, height)
        return found.tensor().tolist()

    return seats


def is_power_of_two(n):
    return n & (n - 1) == 0


def share(row, groups, vectors):
    """What the block's threads do not do in vain: the vectors of a turn, of those that they have room for."""
    return vectors * groups * row["height"] / (row["grid_x"] * row["threads"] * row["items"])


@pytest.mark.parametrize("blocks, sums", [(3, True), (4, True), (4, False)])
@pytest.mark.parametrize("row_items, doubles", [(2, False), (4, False), (2, True)])
@pytest.mark.parametrize("vector, packed, most_items", KINDS)
def test_every_shape_covers_the_rows_within_the_launch_bounds(
    shape, vector, packed, most_items, row_items, doubles, blocks, sums
):
    """Blocks have up to 256 threads with one vector each, 512 with more; registers are left for some of them."""
    fitted = 0
    odd = () if packed else (1, 33, 66, 1025)
    for length in (*odd, vector, 33 * vector, 64 * vector, 65 * vector, 2048, 2056, 4096, 8192, 16384):
        for rows, groups in ((1, 1), (3, 5), (100_000, 2)):
            period = vector // math.gcd(vector, groups * length)  # rows until one begins at a vector again
            touched = -(-length // vector) if packed else (length + vector - 2) // vector + 1
            row = shape(
                rows, groups, length, vector, packed, most_items, row_items, doubles, sums, blocks, schedule="on_chip"
            )
            if row["items"] == 0:
                assert length > 256 * most_items * vector
                continue
            fitted += 1
            most = 512 if row["items"] > 1 else 256
            held = 256 * (blocks - 1 if vector > 4 else blocks) if row["items"] == 1 else 512
            if row["items"] == 2 and vector == 4 and blocks > 3:
                held = 768
            if row["large"]:
                assert 256 < row["threads"] <= 320 and row["items"] == 2 and vector == 8 and not sums
                held = 640
            assert row["threads"] <= most and row["threads"] % 32 == 0 and row["one"] == 1
            assert row["items"] <= most_items and row["items"] * row["lanes"] >= touched
            assert row["grid_x"] * row["across"] >= groups > (row["grid_x"] - 1) * row["across"]
            assert row["grid_y"] % period == 0 and 1 <= row["grid_y"] // period <= -(-rows // (row["height"] * period))
            resident = held // row["threads"] * MULTIPROCESSORS
            assert row["grid_y"] == period or row["grid_x"] * row["grid_y"] <= resident or not sums
            assert row["height"] == 1 or row["lanes"] <= 32
            assert row["step"] == row["grid_y"] * row["height"] and row["step"] % period == 0
    assert fitted >= 12


@pytest.mark.parametrize("doubles, sums", [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("vector, packed, most_items", KINDS)
def test_segments_of_every_length_have_seats_of_their_own(shape, seats, vector, packed, most_items, doubles, sums):
    checked = set()
    for length in range(1, 1101):
        if packed and length % vector:
            continue
        for groups in (1, 2, 3, 5, 8, 33):
            row = shape(1_000_000, groups, length, vector, packed, most_items, doubles=doubles, sums=sums)
            lanes, across, height = row["lanes"], row["across"], row["height"]
            # More than that and the sums over lanes and over rows would be wrong.
            assert is_power_of_two(lanes) if 16 <= lanes <= 32 else lanes < 16 or lanes == row["threads"]
            assert height != 2 or not sums
            assert row["items"] <= 2 or lanes > 32
            block = row["threads"], lanes, across, height
            if block not in checked:
                check_seats(seats(*block), lanes, across, height)
                checked.add(block)


def check_seats(found, lanes, across, height):
    taken = {}
    for thread, (is_taken, row, segment, lane, slot) in enumerate(found):
        if not is_taken:
            continue
        assert (row, segment, lane) not in taken
        taken[row, segment, lane] = thread
        assert slot == (row * across + segment) * lanes + lane < len(found)
        # Neighbours, of one warp where they are no more than that.
        first = taken[row, segment, 0]
        assert thread == first + lane and (lanes > 32 or thread // 32 == first // 32)
        assert lanes > 32 or lane == thread % 32 % lanes
    assert len(taken) == lanes * across * height


@pytest.mark.parametrize("vector, packed, most_items", KINDS)
def test_few_threads_are_idle(shape, vector, packed, most_items):
    """Of a warp and more; what the last groups of a row leave idle comes on top of it, less than a sixth.

    Not packed, a group touches one vector more than it has elements for.
    """
    most_groups = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 32, 33, 100]
    for vectors in range(1 if packed else 2, 1025):
        row = shape(1_000_000, 1, (vectors if packed else vectors - 1) * vector, vector, packed, most_items)
        if row["items"] == 0:
            assert vectors > 256 * most_items
            break
        least = next(least for most, least in LEAST if vectors <= most)
        if vectors <= 32 and most_items == 1:
            least = 0.53
        assert share(row, 1, vectors) >= least, vectors
        for groups in most_groups:
            row = shape(1_000_000, groups, (vectors if packed else vectors - 1) * vector, vector, packed, most_items)
            assert share(row, groups, vectors) >= least * 5 / 6, (vectors, groups)


def warps_share_sectors(row, groups, length):
    """Whether two warps have elements of the same sector, among the first rows."""
    owner = {}
    a_warp = 32 // row["lanes"] if row["lanes"] <= 32 else 1
    for y, x, seat_row, seat in itertools.product(*map(range, (3, row["grid_x"], row["height"], row["across"]))):
        segment = x * row["across"] + seat
        begin = (y * row["height"] + seat_row) * groups * length + segment * length
        warp = y, x, (seat_row * row["across"] + seat) // a_warp
        for sector in range(begin // SECTOR, (begin + length - 1) // SECTOR + 1) if segment < groups else ():
            if owner.setdefault(sector, warp) != warp:
                return True
    return False


@pytest.mark.parametrize("vector, packed, most_items", KINDS)
def test_blocks_take_few_turns_where_warps_share_sectors(shape, vector, packed, most_items):
    """But with column sums, and as far as the grid goes. All else of a launch stays as it is."""
    limited = 0
    for groups, length in itertools.product(
        (1, 2, 5, 6, 7, 12, 17, 32, 256), (2, 3, 8, 9, 31, 32, 33, 36, 40, 44, 4097)
    ):
        if packed and length % vector:
            continue
        for rows in (100, 100_000, 10_000_000):
            few = shape(rows, groups, length, vector, packed, most_items)
            row = shape(rows, groups, length, vector, packed, most_items, sums=False)
            if row["items"] == 0:
                continue
            if packed or vector <= 4 or row["lanes"] > 32:
                alike = {"grid_y": 0, "step": 0, "large": 0}
                assert row | alike == few | alike and row["grid_y"] >= few["grid_y"]
            assert row["step"] * groups * length % vector == 0
            if warps_share_sectors(row, groups, length) and row["grid_y"] + vector < 65535:
                assert -(-rows // row["step"]) <= 32, (rows, groups, length)
            limited += row["grid_y"] > few["grid_y"]
    assert limited > 5
    for length in (32, 2048):
        sizes = (1_000_000, 256, length, vector, packed, most_items)
        assert shape(*sizes, sums=False) == shape(*sizes) or (not packed and vector > 4 and length == 32)


def test_blocks_with_column_sums_take_up_to_four_rows_where_most_multiprocessors_have_one(shape):
    """Of a long segment; a block of short ones has as many rows at a time."""

    def blocks(rows, groups=1, sums=True):
        return shape(rows, groups, 1024, 4, True, 2, sums=sums)["grid_y"]

    assert [blocks(rows) for rows in (1, 132, 197, 198, 329, 330, 528, 529)] == [1, 132, 197, 99, 165, 110, 132, 133]
    assert [blocks(rows, sums=False) for rows in (197, 198, 528)] == [197, 198, 528]
    assert [blocks(rows, groups=2) for rows in (98, 99, 264)] == [98, 50, 66]
    rows = 132 * 32 * 4
    short = shape(rows, 1, 32, 4, True, 2)
    assert short["height"] == 32 and short == shape(rows, 1, 32, 4, True, 2, sums=False)
    # Without vectors blocks come by the rows until one begins at a vector again.
    odd = [shape(rows, 1, 1025, 4, False, 2) for rows in (132, 528)]
    assert [row["grid_y"] for row in odd] == [132, 132]
    assert shape(528, 1, 1025, 4, False, 2, sums=False)["grid_y"] == 528


def test_two_blocks_of_not_much_more_than_256_threads_run_at_a_time(shape):
    """With two vectors of 16 bits, in an instance of their own; four neighbours have registers for that anyway."""

    def blocks(length, vector=8, packed=True, **work):
        row = shape(100_000, 1, length, vector, packed, 32 // vector if packed else 2, **{"sums": False, **work})
        return row["items"], row["threads"], row["large"], row["grid_y"] / 132

    assert [blocks(length) for length in (4096, 4112, 5120)] == [(2, 256, 0, 2), (2, 288, 1, 2), (2, 320, 1, 2)]
    assert [blocks(length) for length in (5136, 8192)] == [(2, 352, 0, 1), (2, 512, 0, 1)]
    # As few rows as test_other_chains.py has.
    assert shape(5, 1, 4104, 8, True, 4, sums=False)["large"] and shape(5, 1, 4097, 8, False, 2, sums=False)["large"]
    assert blocks(9008, schedule="on_chip") == (4, 288, 0, 1)
    assert blocks(4097, packed=False)[:3] == (2, 288, 1) and blocks(4112, blocks=3) == (2, 288, 1, 2)
    assert [blocks(length, vector=4) for length in (2064, 3072)] == [(2, 288, 0, 2), (2, 384, 0, 2)]
    # By the launch bounds a thread that keeps more has no room for two such blocks: four vectors, or none.
    assert [blocks(length, vector=4, blocks=3) for length in (2064, 3072)] == [(4, 160, 0, 3), (2, 384, 0, 1)]
    assert blocks(4112, sums=True)[0] == 2 and blocks(4112, sums=True)[2] == 0


def test_a_launch_has_as_many_blocks_as_run_at_a_time(shape):
    """Whatever the launch bounds promise. Nothing else changes."""
    sizes = (100_000, 1, 1024, 4, True, 8)
    promised = shape(*sizes, sums=False)
    row = shape(*sizes, sums=False, resident=7)
    assert promised["grid_y"] == 4 * 132 and row["grid_y"] == row["step"] == 7 * 132
    assert {**row, "grid_y": 0, "step": 0} == {**promised, "grid_y": 0, "step": 0}
    assert shape(50, *sizes[1:], sums=False, resident=7)["grid_y"] == 50
    assert shape(*sizes, sums=False, row_waves=2)["grid_y"] == 8 * 132


def test_a_grid_has_blocks_and_not_too_many(shape):
    """Where blocks take few turns, as warps share sectors; and where a row alone has more than run at a time."""
    odd = (9, 4, False, 2)
    assert shape(1, 200_000, *odd, sums=False)["grid_y"] == 1
    assert shape(100_000_000, 2, *odd, sums=False)["grid_y"] == 65535 // 2 * 2
    # What a warp has ends with a sector, though a group does not.
    sizes = (1_000_000, 32, 8, 8, True, 4)
    assert shape(*sizes, sums=False)["grid_y"] == shape(*sizes)["grid_y"]


def test_few_elements_do_not_wait_for_each_other(shape):
    """Below 1024 vectors for each multiprocessor: two vectors a thread only where they must be, and with column sums
    not even there."""

    def launch(rows, vectors, sums, vector=4):
        row = shape(rows, 1, vectors * vector, vector, True, 2, sums=sums)
        return row["items"], row["lanes"]

    assert launch(132 * 1024 // 12, 12, False, vector=8) == (2, 6)
    assert launch(132 * 1024 // 12 - 1, 12, False, vector=8) == (1, 16)
    for vectors, one, two in ((12, (1, 16), (2, 6)), (33, (1, 64), (2, 32)), (64, (1, 64), (2, 32))):
        many = -(-132 * 1024 // vectors)
        assert launch(many, vectors, True) == launch(many, vectors, False) == two
        assert launch(many - 1, vectors, True) == one
        assert launch(many - 1, vectors, False) == (one if vectors <= 32 else two)


def test_short_groups_of_16_bits_without_vectors_are_taken_by_small_blocks(shape):
    """As they have many instructions for each element; with column sums blocks would leave more partial results."""

    def threads(length, vector=8, packed=False, sums=False):
        return shape(1000, 32, length, vector, packed, 2, sums=sums)["threads"]

    assert [threads(length) for length in (9, 31, 500)] == [128] * 3
    assert [threads(31, vector=4), threads(32, packed=True), threads(31, sums=True)] == [256] * 3


def test_large_blocks_with_column_sums_are_left_to_the_split_schedule(shape):
    """Where each multiprocessor has few of them: with many constants, or without vectors."""

    def items(rows, length, packed, sums=True, constants=4, schedule="automatic"):
        return shape(rows, 1, length, 4, packed, 2, sums=sums, constants=constants, schedule=schedule)["items"]

    assert [items(rows, 4093, False, constants=0) for rows in (33, 34, 528, 529)] == [2, 0, 0, 2]
    assert [items(rows, 4096, True) for rows in (66, 67, 264, 265)] == [2, 0, 0, 2]
    assert items(100, 4093, False, sums=False) == items(100, 4096, True, sums=False) == 2
    assert items(100, 4096, True, constants=3) == 2
    assert items(100, 3584, True) == 2  # blocks of 448 threads
    assert items(100, 2049, False) == 2  # blocks of 288 threads
    assert items(100, 4093, False, schedule="on_chip_if_it_fits") == items(100, 4096, True, schedule="on_chip") == 2


def test_what_the_registers_of_a_block_hold_badly_is_left_to_the_split_schedule(shape):
    """With more than two vectors a thread: large blocks, and many constants that each row reads anew. But not if the
    split schedule would read two tensors again."""

    def items(rows, length, vector=4, constants=2, again=1, before=False, schedule="automatic"):
        work = {"sums": False, "constants": constants, "again": again, "before": before}
        return shape(rows, 1, length, vector, True, 32 // vector, schedule=schedule, **work)["items"]

    few, many = 132, 133
    # Four vectors each, in more than 256 threads.
    assert [items(rows, length) for length in (5636, 8192) for rows in (few, many)] == [4, 0, 4, 0]
    assert [items(rows, 9000, vector=8, constants=0) for rows in (few, many)] == [4, 0]
    assert shape(many, 1, 4096, 4, True, 8, row_items=4, sums=False)["items"] == 4  # 256 threads
    assert items(many, 5632, vector=8) == 2  # 352 threads, which do better than 192 with four
    # Eight vectors each: only where half of the threads that four would need have nearly all of them.
    assert [items(rows, 5120) for rows in (16 * 132, 16 * 132 + 1)] == [0, 8]
    assert [items(10_000, length) for length in (4100, 4476, 4480, 5120, 5124)] == [0, 0, 8, 8, 0]
    # If their costly functions come before the last sums, the split schedule repeats them.
    assert [items(rows, length, before=True) for length in (4100, 5124) for rows in (16 * 132, 10_000)] == [0, 8] * 2
    assert items(10_000, 5636, before=True) == 0
    assert [items(rows, length) for rows in (few, many) for length in (8196, 16384)] == [0, 0, 0, 0]
    assert [items(1000, length, constants=1) for length in (4100, 8196, 16384)] == [8, 8, 8]
    assert [items(1000, length, again=2) for length in (4100, 8192, 16384)] == [8, 4, 8]
    assert items(many, 8192, schedule="on_chip") == 4
    assert items(1, 4100, schedule="on_chip_if_it_fits") == 8
    assert items(100_000, 4096) == 2


@pytest.mark.parametrize(
    "vectors, lanes, items",
    [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 2, 2), (6, 3, 2), (8, 4, 2), (32, 16, 2), (64, 32, 2)],
)
def test_threads_have_twice_as_much_where_no_more_of_them_are_idle(shape, vectors, lanes, items):
    """Never a lane alone: the vectors of its neighbours would be two apart."""
    row = shape(1000, 8, vectors * 4, 4, True, 8, doubles=True, sums=False)
    assert (row["lanes"], row["items"]) == (lanes, items)
    # With column sums a short segment's threads have wider vectors instead.
    assert shape(1000, 8, vectors * 4, 4, True, 8, doubles=True) == shape(1000, 8, vectors * 4, 4, True, 8)


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize(
    "vectors, threads, items",
    [(65, 96, 1), (96, 96, 1), (97, 64, 2), (128, 64, 2), (160, 160, 1), (161, 96, 2), (256, 128, 2)],
)
def test_threads_of_a_long_segment_have_twice_as_much_where_no_more_of_them_are_idle(
    shape, vectors, threads, items, sums
):
    """Whole warps; with column sums too."""
    row = shape(1000, 8, vectors * 4, 4, True, 8, doubles=True, sums=sums)
    assert (row["threads"], row["items"]) == (threads, items)
    assert shape(1000, 8, vectors * 4, 4, True, 8, sums=sums)["items"] == 1


@pytest.mark.parametrize(
    "groups, across, height", [(1, 1, 24), (2, 2, 12), (3, 3, 8), (4, 2, 12), (6, 3, 8), (7, 2, 12)]
)
def test_blocks_are_divided_among_a_rows_groups(shape, groups, across, height):
    """Groups of 33 elements without vectors, of which a warp has three."""
    row = shape(1000, groups, 33, 4, False, 2)
    assert (row["items"], row["lanes"], row["across"], row["height"]) == (1, 9, across, height)
