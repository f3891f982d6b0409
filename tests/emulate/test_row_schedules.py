"""Which rows a launcher leaves to the split schedule, and which instance of a row kernel takes the others."""

from __future__ import annotations


def test_large_blocks_have_an_instance_of_their_own(shape):
    """Where the usual one has registers for one block at a time, or for none: forward."""

    def launch(length, vector=8, packed=True, **work):
        row = shape(100_000, 1, length, vector, packed, **{"sums": 0, **work})
        return row["items"], row["threads"], row["large"], row["grid_y"] / 132

    assert [launch(length) for length in (4096, 4112, 5120)] == [(2, 256, 0, 2), (2, 288, 1, 3), (2, 320, 1, 3)]
    assert [launch(length) for length in (5136, 8192)] == [(2, 352, 1, 2), (2, 512, 1, 2)]
    assert [launch(length) for length in (8208, 16384)] == [(2, 544, 1, 1), (2, 1024, 1, 1)]
    assert launch(16392)[0] == 0
    # Not packed, a row may touch one vector more.
    assert launch(4097, packed=False)[:3] == (2, 288, 1) and launch(4081, packed=False)[:3] == (2, 256, 0)
    assert launch(16377, packed=False)[:3] == (2, 1024, 1) and launch(16378, packed=False)[0] == 0
    # Four neighbours have registers for two blocks of up to 384 threads, unless a thread keeps more.
    assert [launch(length, vector=4) for length in (3072, 3088)] == [(2, 384, 0, 2), (2, 416, 1, 2)]
    assert [launch(length, vector=4, blocks=3) for length in (2048, 2064)] == [(2, 256, 0, 2), (2, 288, 1, 3)]
    # As few rows as test_other_chains.py has.
    assert shape(5, 1, 4104, 8, True, sums=0)["large"] and shape(5, 1, 8192, 4, False, sums=0)["items"] == 0


def test_constants_of_the_columns_have_room_in_shared_memory(shape):
    """Or the block is not launched: 200 KiB are 400 bytes for each of 512 threads."""

    def threads(length, staged, vector=8, **work):
        return shape(100_000, 1, length, vector, True, staged=staged, **{"sums": 0, **work})["threads"]

    assert threads(16384, 200) == 1024
    assert [threads(length, 201) for length in (15872, 15880, 16384)] == [992, 1, 1]
    assert [threads(length, 400) for length in (8192, 8200)] == [512, 1]
    assert shape(100_000, 1, 8200, 8, True, staged=400, sums=0)["items"] == 0
    assert [threads(length, 401, vector=4, sums=3) for length in (3840, 3844)] == [480, 1]


def test_large_blocks_with_column_sums(shape):
    """The usual instance has more registers, so it takes what it can, but for little more than 256 threads of 16 bits,
    and then only for many turns."""

    def launch(rows, length, bytes=2, packed=True, **work):
        row = shape(rows, 1, length, 4, packed, bytes=bytes, **{"has_large": True, "blocks": 3, **work})
        return row["threads"], row["large"], row["grid_y"] / 132

    light, turns = {"sums": 2, "constants": 1}, 132 * 4096  # elements of a turn
    assert launch(100_000, 2560, **light) == (320, 1, 3) and launch(-(-4 * turns // 2560), 2560, **light)[1] == 1
    assert launch(4 * turns // 2560, 2560, **light)[1] == 0
    assert launch(-(-16 * turns // 2560), 2560)[1] == 1 and launch(16 * turns // 2560, 2560)[1] == 0
    assert launch(100_000, 2048, **light) == (256, 0, 2) and launch(100_000, 2564, **light) == (352, 0, 1)
    assert launch(100_000, 2560, bytes=4, **light)[1] == launch(100_000, 2560, has_large=False)[1] == 0
    assert launch(100_000, 4096, **light) == (512, 0, 1) and launch(100_000, 4100, **light) == (544, 1, 1)
    assert launch(100_000, 8189, packed=False, **light) == (1024, 1, 1)


def test_rows_longer_than_the_usual_instance_holds_with_column_sums(shape):
    """Are taken on chip where sums in shared memory cost less than a second read."""

    def items(rows, length, packed=True, schedule="automatic", **work):
        asked = {"has_large": True, "blocks": 3, "bytes": 4, **work}
        return shape(rows, 1, length, 4, packed, schedule=schedule, **asked)["items"]

    few = 4 * 132 * 4096 // 8192
    assert [items(rows, 8192) for rows in (few - 1, few)] == [0, 2]
    assert [items(few - 1, 8192, schedule=name) for name in ("on_chip", "split")] == [2, 2]
    assert items(100_000, 8196, schedule="on_chip") == 0
    assert items(100_000, 8192, schedule="on_chip", has_large=False) == 0
    # Much to do for each element.
    assert [items(100_000, 8192, values=values) for values in (16, 17)] == [2, 0]
    assert items(100_000, 8189, packed=False, values=17) == 2
    # 16 bits are half as much to read again, for as many sums.
    half = {"bytes": 2, "sums": 2}
    assert [items(100_000, 6144, **half, constants=constants) for constants in (1, 2)] == [2, 0]
    assert items(100_000, 6148, **half, constants=2) == 2
    assert [items(rows, 8192, **half, constants=2) for rows in (2 * few - 1, 2 * few)] == [0, 2]
    assert items(100_000, 4100, bytes=2, again=3) == items(100_000, 8189, bytes=2, packed=False) == 2


def test_large_blocks_with_column_sums_are_left_to_the_split_schedule(shape):
    """Where each multiprocessor has few of them: with many constants, or without vectors."""

    def items(rows, length, packed, sums=3, constants=4, schedule="automatic"):
        return shape(rows, 1, length, 4, packed, 2, sums=sums, constants=constants, schedule=schedule)["items"]

    assert [items(rows, 4093, False, constants=0) for rows in (33, 34, 528, 529)] == [2, 0, 0, 2]
    assert [items(rows, 4096, True) for rows in (66, 67, 264, 265)] == [2, 0, 0, 2]
    assert items(100, 4093, False, sums=0) == items(100, 4096, True, sums=0) == 2
    assert items(100, 4096, True, constants=3) == 2
    assert items(100, 3584, True) == 2  # blocks of 448 threads
    assert items(100, 2049, False) == 2  # blocks of 288 threads
    assert items(100, 4093, False, schedule="on_chip_if_it_fits") == items(100, 4096, True, schedule="on_chip") == 2
