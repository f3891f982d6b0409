"""Launch shapes of the row kernels, as the emitted launchers compute them, and what their threads make of them."""

from __future__ import annotations

import itertools
import math

import pytest

MULTIPROCESSORS = 132
SECTOR = 16
"""Elements of 16 bits."""

# Segments of so many vectors at most, and the least share of the threads that have one.
LEAST = ((32, 0.65), (64, 0.51), (256, 0.67), (1025, 0.80))

# Elements of a vector, whether they are neighbours, and the vectors that a thread may have.
KINDS = [
    (4, True, 2),
    (8, True, 2),
    (8, True, 1),
    (2, True, 2),
    (4, False, 2),
    (8, False, 2),
]


def is_power_of_two(n):
    return n & (n - 1) == 0


def is_masked(row, vector, packed, sums):
    """Whether threads have the vectors that a segment touches: not packed and not unaligned."""
    runs = row["items"] == 1 and (vector <= 4 or sums)
    return not packed and not runs


def vectors_of(length, vector, masked):
    """How many a segment has: one more where it need not begin with one."""
    return (length + vector - 2) // vector + 1 if masked else -(-length // vector)


def share(row, groups, vectors):
    """The vectors of an iteration, as a share of those that the threads of a block could have."""
    return (
        vectors * groups * row["rows_per_iteration"] / (row["grid_x"] * row["threads"] * row["items"] * row["cluster"])
    )


@pytest.mark.parametrize("blocks, sums, has_full_blocks", [(3, 3, False), (4, 3, True), (4, 0, True)])
@pytest.mark.parametrize("doubles", [False, True])
@pytest.mark.parametrize("vector, packed, most_items", KINDS)
def test_every_shape_covers_the_rows_within_the_launch_bounds(
    shape, vector, packed, most_items, doubles, blocks, sums, has_full_blocks
):
    """Blocks have up to 256 threads with one vector each, 512 with two, or 1024 where there is an instance for them;
    registers are left for some of them. With column sums up to eight blocks share a segment."""
    fitted = 0
    odd = () if packed else (1, 33, 66, 1025)
    for length in (*odd, vector, 33 * vector, 64 * vector, 65 * vector, 2048, 2056, 4096, 8184, 16384):
        for rows, groups in ((1, 1), (3, 5), (100_000, 2)):
            work = {"doubles": doubles, "blocks": blocks, "sums": sums, "has_full_blocks": has_full_blocks}
            row = shape(rows, groups, length, vector, packed, most_items, **work, schedule="persistent")
            masked = is_masked(row, vector, packed, sums)
            touched = vectors_of(length, vector, masked)
            if row["items"] == 0:
                assert touched > (1024 if not sums else 2048) * 2 or (most_items == 1 and touched > 256)
                continue
            fitted += 1
            # Rows until one begins at a vector again.
            period = row["period"]
            assert period == (vector // math.gcd(vector, groups * length) if masked else 1)
            held = 256 * (blocks - 1 if vector > 4 else blocks)
            if row["items"] == 2:
                held = 1024 if row["full_block"] else 768 if vector == 4 and blocks > 3 else 512
            cluster = row["cluster"]
            assert row["items"] <= most_items and cluster * row["items"] * row["lanes"] >= touched
            assert cluster == 1 or (sums and not row["full_block"] and row["threads"] * cluster <= 2048)
            assert row["threads"] <= (256 if row["items"] == 1 else 1024 if row["full_block"] else 512)
            assert row["threads"] % 32 == 0 and row["one"] == 1
            assert row["grid_x"] * row["segments_per_block"] >= groups > (row["grid_x"] - 1) * row["segments_per_block"]
            assert row["grid_y"] % period == 0 and 1 <= row["grid_y"] // period <= -(
                -rows // (row["rows_per_iteration"] * period)
            )
            resident = held // row["threads"] * MULTIPROCESSORS
            assert row["grid_y"] == period or row["grid_x"] * row["grid_y"] * cluster <= resident or not sums
            assert row["rows_per_iteration"] == 1 or row["lanes"] <= 32
            assert row["step"] == row["grid_y"] * row["rows_per_iteration"] and row["step"] % period == 0
    assert fitted >= 12


@pytest.mark.parametrize("doubles, sums", [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("vector, packed, most_items", KINDS)
def test_segments_of_every_length_have_positions_of_their_own(shape, vector, packed, most_items, doubles, sums):
    checked = set()
    for length in range(1, 1101):
        if packed and length % vector:
            continue
        for groups in (1, 2, 3, 5, 8, 33):
            row = shape(1_000_000, groups, length, vector, packed, most_items, doubles=doubles, sums=sums)
            lanes, segments, rows = row["lanes"], row["segments_per_block"], row["rows_per_iteration"]
            # More than that and the sums over lanes and over rows would be wrong.
            assert is_power_of_two(lanes) if 16 <= lanes <= 32 else lanes < 16 or lanes == row["threads"]
            assert rows != 2 or not sums
            block = row["threads"], lanes, segments, rows
            if block not in checked:
                check_positions(shape.positions(*block), lanes, segments, rows)
                checked.add(block)


def check_positions(found, lanes, segments, rows):
    taken = {}
    for thread, (is_taken, row, segment, lane, slot) in enumerate(found):
        if not is_taken:
            continue
        assert (row, segment, lane) not in taken
        taken[row, segment, lane] = thread
        assert slot == (row * segments + segment) * lanes + lane < len(found)
        # Neighbours, of one warp where they are no more than that.
        first = taken[row, segment, 0]
        assert thread == first + lane and (lanes > 32 or thread // 32 == first // 32)
        assert lanes > 32 or lane == thread % 32 % lanes
    assert len(taken) == lanes * segments * rows


@pytest.mark.parametrize("vector, packed, most_items", KINDS)
def test_few_threads_are_idle(shape, vector, packed, most_items):
    """Of a warp and more; what the last groups of a row leave idle comes on top of it, less than a sixth.

    Not packed, a group touches one vector more than it has elements for, unless threads have unaligned vectors.
    """
    most_groups = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 32, 33, 100]
    for whole in range(1, 1025):
        row = shape(1_000_000, 1, whole * vector, vector, packed, most_items)
        vectors = whole + is_masked(row, vector, packed, sums=True)
        if row["items"] == 0:
            assert vectors > 256 * most_items
            break
        least = next(least for most, least in LEAST if vectors <= most)
        if vectors <= 32 and most_items == 1:
            least = 0.53
        elif vectors == 20 and not packed:
            least = 0.62  # two of the 21 that are touched would be no fewer threads
        assert share(row, 1, vectors) >= least, vectors
        for groups in most_groups:
            row = shape(1_000_000, groups, whole * vector, vector, packed, most_items)
            assert share(row, groups, vectors) >= least * 5 / 6, (vectors, groups)


def warps_share_sectors(row, groups, length):
    """Whether two warps have elements of the same sector, among the first rows."""
    owner = {}
    per_warp = 32 // row["lanes"] if row["lanes"] <= 32 else 1
    for y, x, row_index, position in itertools.product(
        *map(range, (3, row["grid_x"], row["rows_per_iteration"], row["segments_per_block"]))
    ):
        segment = x * row["segments_per_block"] + position
        begin = (y * row["rows_per_iteration"] + row_index) * groups * length + segment * length
        warp = y, x, (row_index * row["segments_per_block"] + position) // per_warp
        for sector in range(begin // SECTOR, (begin + length - 1) // SECTOR + 1) if segment < groups else ():
            if owner.setdefault(sector, warp) != warp:
                return True
    return False


@pytest.mark.parametrize("vector, packed, most_items", KINDS)
def test_blocks_take_few_iterations_where_warps_share_sectors(shape, vector, packed, most_items):
    """But with column sums, and as far as the grid goes. All else of a launch stays as it is."""
    limited = 0
    for groups, length in itertools.product(
        (1, 2, 5, 6, 7, 12, 17, 32, 256), (2, 3, 8, 9, 31, 32, 33, 36, 40, 44, 4097)
    ):
        if packed and length % vector:
            continue
        for rows in (100, 100_000, 10_000_000):
            few = shape(rows, groups, length, vector, packed, most_items, cluster=1)
            row = shape(rows, groups, length, vector, packed, most_items, sums=False)
            if row["items"] == 0:
                continue
            if few["items"] > 0 and (packed or vector <= 4 or row["lanes"] > 32):
                alike = {"grid_y": 0, "step": 0, "full_block": 0}
                assert row | alike == few | alike and row["grid_y"] >= few["grid_y"]
            assert not is_masked(row, vector, packed, sums=False) or row["step"] * groups * length % vector == 0
            if warps_share_sectors(row, groups, length) and row["grid_y"] + vector < 65535:
                assert -(-rows // row["step"]) <= 32, (rows, groups, length)
            limited += few["items"] > 0 and row["grid_y"] > few["grid_y"]
    assert limited > 5
    for length in (32, 2048):
        sizes = (1_000_000, 256, length, vector, packed, most_items)
        # Eight elements without vectors are unaligned or masked, with column sums and without.
        assert shape(*sizes, sums=False) | {"full_block": 0} == shape(*sizes) or (not packed and vector > 4)


def test_blocks_with_column_sums_take_up_to_four_rows_where_most_multiprocessors_have_one(shape):
    """Of a long segment; a block of short ones has as many rows at a time."""

    def blocks(rows, groups=1, sums=True):
        return shape(rows, groups, 1024, 4, True, 2, sums=sums)["grid_y"]

    assert [blocks(rows) for rows in (1, 132, 197, 198, 329, 330, 528, 529)] == [1, 132, 197, 99, 165, 110, 132, 133]
    assert [blocks(rows, sums=False) for rows in (197, 198, 528)] == [197, 198, 528]
    assert [blocks(rows, groups=2) for rows in (98, 99, 264)] == [98, 50, 66]
    rows = 132 * 32 * 4
    short = shape(rows, 1, 32, 4, True, 2)
    assert short["rows_per_iteration"] == 32 and short == shape(rows, 1, 32, 4, True, 2, sums=False)
    # Without vectors blocks come by the rows until one begins at a vector again, unless threads have unaligned vectors.
    odd = [shape(rows, 1, 1025, 4, False, 2) for rows in (132, 528)]
    assert [row["grid_y"] for row in odd] == [132, 132]
    assert shape(528, 1, 1025, 4, False, 2, sums=False)["grid_y"] == 528
    assert [shape(rows, 1, 1023, 4, False, 2)["grid_y"] for rows in (132, 197, 198)] == [132, 197, 99]


def test_a_launch_has_as_many_blocks_as_run_at_a_time(shape):
    """Whatever the launch bounds promise. Nothing else changes."""
    sizes = (100_000, 1, 1024, 4, True)
    promised = shape(*sizes, sums=False)
    row = shape(*sizes, sums=False, resident=7)
    assert promised["grid_y"] == 4 * 132 and row["grid_y"] == row["step"] == 7 * 132
    assert {**row, "grid_y": 0, "step": 0} == {**promised, "grid_y": 0, "step": 0}
    assert shape(50, *sizes[1:], sums=False, resident=7)["grid_y"] == 50
    assert shape(*sizes, sums=False, row_waves=2)["grid_y"] == 8 * 132


def test_a_grid_has_blocks_and_not_too_many(shape):
    """Where blocks take few iterations, as warps share sectors; and where a row alone has more than run at a time."""
    odd = (9, 4, False, 2)
    assert shape(1, 200_000, *odd, sums=False)["grid_y"] == 1
    assert shape(100_000_000, 2, *odd, sums=False)["grid_y"] == 65535
    assert shape(100_000_000, 2, 11, 8, False, 2, sums=False)["grid_y"] == 65535 // 4 * 4
    # What a warp has ends with a sector, though a group does not.
    sizes = (1_000_000, 32, 8, 8, True)
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


@pytest.mark.parametrize(
    "vectors, lanes, items",
    [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 2, 2), (6, 3, 2), (8, 4, 2), (32, 16, 2), (64, 32, 2)],
)
def test_threads_have_twice_as_much_where_no_more_of_them_are_idle(shape, vectors, lanes, items):
    """Never a lane alone: the vectors of its neighbours would be two apart."""
    row = shape(1000, 8, vectors * 4, 4, True, doubles=True, sums=False)
    assert (row["lanes"], row["items"]) == (lanes, items)
    # With column sums a short segment's threads have wider vectors instead.
    assert shape(1000, 8, vectors * 4, 4, True, doubles=True) == shape(1000, 8, vectors * 4, 4, True)


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize(
    "vectors, threads, items",
    [(65, 96, 1), (96, 96, 1), (97, 64, 2), (128, 64, 2), (160, 160, 1), (161, 96, 2), (256, 128, 2)],
)
def test_threads_of_a_long_segment_have_twice_as_much_where_no_more_of_them_are_idle(
    shape, vectors, threads, items, sums
):
    """Whole warps; with column sums too."""
    row = shape(1000, 8, vectors * 4, 4, True, doubles=True, sums=sums)
    assert (row["threads"], row["items"]) == (threads, items)
    assert shape(1000, 8, vectors * 4, 4, True, sums=sums)["items"] == 1


def test_unaligned_vectors_take_no_more_threads_than_vectors_do(shape):
    """In float32, and in 16 bits with column sums, where a thread has one."""

    def lanes(length, vector, sums=False, packed=False):
        row = shape(1000, 8, length, vector, packed, 1 if sums else 2, sums=sums)
        return row["items"], row["lanes"]

    assert lanes(31, 4) == lanes(32, 4, packed=True) == (1, 8) and lanes(33, 4) == (1, 9)
    assert lanes(31, 8, sums=True) == lanes(32, 8, sums=True, packed=True) == (1, 4)
    # One vector more is touched, of 16 bits without column sums and by two items.
    assert lanes(31, 8) == (1, 5) and lanes(253, 4) == lanes(256, 4, packed=True) == (2, 32)
    assert lanes(254, 4) == (1, 64)


def test_eight_elements_of_16_bits_a_thread_beside_column_sums(shape):
    """Of a warp's segments; without vectors fewer where many tensors are read word by word."""

    def longest(**work):
        return max(length for length in range(1, 600) if shape.can_have_full_vector(length, **work))

    assert [longest(again=again, packed=True) for again in (2, 3)] == [256, 256]
    assert [longest(again=again, packed=False) for again in (2, 3)] == [256, 32]
    assert shape.can_have_full_vector(36, again=2, packed=False) and not shape.can_have_full_vector(
        36, again=2, packed=True
    )


def test_two_vectors_a_thread_of_a_long_segment_without_vectors(shape):
    """Where no more threads are idle, and with column sums in float32 where registers are left."""

    def launch(length, **work):
        row = shape(1000, 1, length, 4, False, doubles=True, **work)
        return row["threads"], row["items"]

    assert [launch(length, sums=sums) for length in (1021, 1022) for sums in (0, 3)] == [(128, 2)] * 2 + [(256, 1)] * 2
    work = {"constants": 3, "values": 15, "bytes": 4}
    assert shape.unaligned_doubles(sums=3, **work) and not shape.unaligned_doubles(sums=4, **work)
    assert shape.unaligned_doubles(sums=4, **work | {"bytes": 2}) and shape.unaligned_doubles(
        sums=0, **work | {"values": 30}
    )
    assert shape.unaligned_doubles(sums=4, **work | {"constants": 4, "values": 22})


@pytest.mark.parametrize(
    "groups, segments, rows", [(1, 1, 24), (2, 2, 12), (3, 3, 8), (4, 2, 12), (6, 3, 8), (7, 2, 12)]
)
def test_blocks_are_divided_among_a_rows_groups(shape, groups, segments, rows):
    """Groups of 33 elements without vectors, of which a warp has three."""
    row = shape(1000, groups, 33, 4, False, 2)
    assert (row["items"], row["lanes"], row["segments_per_block"], row["rows_per_iteration"]) == (1, 9, segments, rows)
