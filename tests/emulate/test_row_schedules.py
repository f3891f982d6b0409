"""Which rows a launcher leaves to the two-pass schedule, and which instance of a row kernel takes the others."""

from __future__ import annotations


def forward_launch(shape, length, vector=8, packed=True, **work):
    row = shape(100_000, 1, length, vector, packed, **{"sums": 0, **work})
    return row["items"], row["threads"], row["full_block"], row["grid_y"] / 132


def test_full_blocks_have_an_instance_of_their_own(shape):
    """Where the usual one has registers for one block at a time, or for none: forward."""

    def launch(length, **work):
        return forward_launch(shape, length, **work)

    assert [launch(length) for length in (4112, 5120)] == [(2, 288, 1, 3), (2, 320, 1, 3)]
    assert [launch(length) for length in (5136, 8192)] == [(2, 352, 1, 2), (2, 512, 1, 2)]
    assert [launch(length) for length in (8208, 16384)] == [(2, 544, 1, 1), (2, 1024, 1, 1)]
    assert launch(16392)[0] == 0
    # Not packed, a row may touch one vector more.
    assert launch(4097, packed=False)[:3] == (2, 288, 1) and launch(4081, packed=False)[:3] == (2, 256, 1)
    assert launch(16377, packed=False)[:3] == (2, 1024, 1) and launch(16378, packed=False)[0] == 0
    # Four neighbours have registers for two blocks of up to 384 threads, unless a thread keeps more.
    assert [launch(length, vector=4) for length in (3072, 3088)] == [(2, 384, 0, 2), (2, 416, 1, 2)]
    # As few rows as test_other_chains.py has.
    assert shape(5, 1, 4104, 8, True, sums=0)["full_block"] and shape(5, 1, 8192, 4, False, sums=0)["items"] == 0


def test_full_blocks_of_which_a_multiprocessor_holds_more(shape):
    """Half as many again, where the usual instance has registers for two, or in 16 bits where rows begin within
    vectors: forward, with iterations enough."""

    def launch(length, **work):
        return forward_launch(shape, length, **work)

    assert [launch(length) for length in (2560, 2576, 4096)] == [(2, 160, 0, 3), (2, 192, 1, 5), (2, 256, 1, 4)]
    assert launch(4096, shared_bytes=400) == (2, 256, 0, 2)  # has no room for more than 512 threads
    assert [launch(length, vector=4) for length in (2048, 2064)] == [(2, 256, 0, 3), (2, 288, 1, 3)]
    assert launch(2560, vector=4) == (2, 320, 1, 3) and launch(2064, vector=4, blocks=3) == (2, 288, 1, 3)
    assert [launch(length, vector=4, blocks=3) for length in (1280, 2048)] == [(2, 160, 0, 3), (2, 256, 1, 4)]
    masked = [launch(length, packed=False, doubles=True)[1:3] for length in (762, 1017, 1274, 1529, 2041)]
    assert masked == [(64, 0), (64, 0), (96, 1), (96, 1), (128, 1)]
    assert launch(2050, packed=False)[2] and not launch(2050, packed=False, shared_bytes=500)[2]
    four = [launch(length, vector=4, packed=False)[1:3] for length in (1025, 1277, 2050)]
    assert four == [(160, 0), (160, 0), (288, 1)]
    assert [shape(rows, 1, 4096, 8, True, sums=0)["full_block"] for rows in (6 * 264 - 1, 6 * 264)] == [0, 1]
    assert [shape(rows, 1, 3001, 8, False, sums=0)["full_block"] for rows in (2161, 2162)] == [0, 1]
    # As many rows as test_other_chains.py has, of one multiprocessor, and as fusegen/plan/sizes/chain_sizes.py.
    assert (
        shape(30 * 132, 1, 3001, 8, False, sums=0)["full_block"]
        and shape(2200, 1, 3001, 8, False, sums=0)["full_block"]
    )


def test_constants_of_the_columns_have_room_in_shared_memory(shape):
    """Or the block is not launched: 200 KiB are 400 bytes for each of 512 threads."""

    def threads(length, shared_bytes, vector=8, **work):
        return shape(100_000, 1, length, vector, True, shared_bytes=shared_bytes, **{"sums": 0, **work})["threads"]

    assert threads(16384, 200) == 1024
    assert [threads(length, 201) for length in (15872, 15880, 16384)] == [992, 1, 1]
    assert [threads(length, 400) for length in (8192, 8200)] == [512, 1]
    assert shape(100_000, 1, 8200, 8, True, shared_bytes=400, sums=0)["items"] == 0
    assert [threads(length, 401, vector=4, sums=3, blocks=3, cluster=1) for length in (3840, 3844)] == [480, 1]


ITERATION = 132 * 4096
"""Elements of an iteration, of four neighbours."""


def test_full_blocks_with_column_sums(shape):
    """For many iterations with 16 bits: where the usual instance has registers for one block that is not much longer
    than half of what it could be, or where full blocks are nearly as large as they can be and have little to do."""

    def launch(length, iterations=100, **work):
        asked = {"bytes": 2, "has_full_blocks": True, "blocks": 3, **work}
        row = shape(-(-iterations * ITERATION // length), 1, length, 4, True, **asked)
        return row["threads"], row["full_block"], row["cluster"]

    light = {"sums": 2, "constants": 1}
    assert launch(2560) == launch(2560, **light) == launch(2560, iterations=32) == (320, 1, 1)
    assert launch(2560, iterations=31) == launch(2560, bytes=4) == launch(2560, has_full_blocks=False) == (160, 0, 2)
    assert [launch(length)[1] for length in (2048, 2052, 2564)] == [0, 1, 0]
    assert [launch(length, **light)[:2] for length in (6912, 6916, 8192)] == [(448, 0), (896, 1), (1024, 1)]
    assert launch(8192, again=3) == (1024, 1, 1) and launch(8192)[1:] == (0, 2)
    assert launch(8192, bytes=4, **light)[1] == launch(8192, iterations=31, **light)[1] == 0
    assert launch(8192, shared_bytes=201, **light) == (512, 0, 2)  # has no room for more than 992 threads


def test_segments_that_a_cluster_holds(shape):
    """With column sums: as many blocks as keep the most threads of a multiprocessor busy."""

    def launch(length, iterations=100, packed=True, **work):
        asked = {"bytes": 4, "blocks": 3, **work}
        row = shape(-(-iterations * ITERATION // length), 1, length, 4, packed, **asked)
        return row["cluster"], row["threads"], row["grid_y"]

    assert launch(2048) == (1, 256, 264) and launch(2304) == (2, 160, 198) == launch(2560)
    assert launch(3072) == (1, 384, 132) and launch(4096) == (1, 512, 132)
    assert launch(5120) == (4, 160, 87) and launch(6144) == (6, 128, 77)
    assert launch(8192) == (2, 512, 66)
    assert launch(10240) == (8, 160, 43) and launch(12288) == (6, 256, 38) and launch(16384) == (8, 256, 29)
    assert launch(16388) == (1, 1, 1)  # two-pass
    # Not packed, a row touches a vector more, and blocks come by the four rows until one begins at a vector again.
    assert launch(4093, packed=False)[:2] == (1, 512) and launch(4097, packed=False) == (6, 96, 96)
    assert launch(16381, packed=False)[:2] == (8, 256) and launch(16385, packed=False) == (1, 1, 1)
    # Few iterations: one block, or small ones.
    assert [launch(2560, iterations=iterations)[0] for iterations in (7, 8)] == [1, 2]
    assert [launch(length, iterations=7)[:2] for length in (4096, 4100, 8192, 16384)] == [
        (1, 512), (6, 96), (8, 128), (8, 256)
    ]  # fmt: skip
    # Without clusters, or column sums, a block at a time.
    assert launch(4096, cluster=1) == (1, 512, 132) and launch(4100, cluster=1) == (1, 1, 1)
    assert launch(8192, sums=0)[:2] == (1, 1024) and launch(8196, sums=0) == (1, 1, 1)
    # As many as there may be on every such GPU.
    assert [launch(16384, cluster=cluster)[0] for cluster in (3, 4, 6, 8)] == [1, 4, 4, 8]


def test_full_blocks_with_column_sums_where_there_are_no_clusters(shape):
    """On a GPU before sm_90: where the usual instance has no room, but for few iterations."""

    def items(length, iterations=100, schedule="automatic", **work):
        asked = {"has_full_blocks": True, "blocks": 3, "bytes": 4, "cluster": 1, **work}
        row = shape(-(-iterations * ITERATION // length), 1, length, 4, True, schedule=schedule, **asked)
        assert row["items"] == 0 or row["full_block"] == (length > 4096)
        return row["items"]

    assert [items(length) for length in (4096, 4100, 8192, 8196)] == [2, 2, 2, 0]
    assert items(8192, iterations=3) == 0 and items(8192, iterations=3, schedule="persistent") == 2
    assert items(8192, has_full_blocks=False) == items(8192, shared_bytes=201) == 0


def test_clusters_with_constants_in_shared_memory(shape):
    """Blocks have as many threads as find room there: 200 KiB are 400 bytes for each of 512 threads."""
    sizes = (100_000, 1, 8192, 4, True)
    assert [shape(*sizes, blocks=3, shared_bytes=shared_bytes)["threads"] for shared_bytes in (400, 401)] == [512, 128]


def test_full_blocks_with_column_sums_are_left_to_the_two_pass_schedule(shape):
    """Where each multiprocessor has few of them: with many constants, or without vectors."""

    def items(rows, length, packed, sums=3, constants=4, schedule="automatic"):
        return shape(rows, 1, length, 4, packed, 2, sums=sums, constants=constants, schedule=schedule)["items"]

    assert [items(rows, 4093, False, constants=0) for rows in (33, 34, 528, 529)] == [2, 0, 0, 2]
    assert [items(rows, 4096, True) for rows in (66, 67, 264, 265)] == [2, 0, 0, 2]
    assert items(100, 4093, False, sums=0) == items(100, 4096, True, sums=0) == 2
    assert items(100, 4096, True, constants=3) == 2
    assert items(100, 3584, True) == 2  # blocks of 448 threads
    assert items(100, 2049, False) == 2  # blocks of 288 threads
    assert (
        items(100, 4093, False, schedule="persistent_if_it_fits") == items(100, 4096, True, schedule="persistent") == 2
    )
