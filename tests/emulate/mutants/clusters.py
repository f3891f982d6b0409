"""What the blocks of a cluster do together and each does alone: barriers, the order of sums, rows, results."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import BEYOND_SHARED, EARLY, RACE, Mutant, nan, wrong

OTHER_BLOCK = "which another block of the cluster has (written|read), with no cluster barrier in between"
TOO_EARLY = f"of shared memory, which nothing has written|{OTHER_BLOCK}"
NOT_ARRIVED = r"waits for the cluster's barrier at cluster.cuh:\d+ and has not arrived"
NOT_WAITED = r"arrives at the cluster's barrier at cluster.cuh:\d+ and has not waited"
_EXITS = "exits with no cluster barrier|the shared memory of a block that has exited"
_ALIKE = r"rows that are alike differ in (y|grad_matmul_product)"
_COLUMN, _SEGMENTS, _SEGMENT_RUN = "kernels/column.cuh", "row_reduction_sums.cuh", "segments of a cluster"


def _mutant(name, old, new, caught, within=None, file="cluster.cuh", run="cluster", nth=0, of=1):
    where = f"{within}: " if within else ""
    kernel = None
    if not caught.startswith(("(?=", "rows that")):  # a verdict on results names no kernel
        kernel = "row_reduction_kernel" if run == _SEGMENT_RUN else "column_kernel"
    return Mutant(f"cluster, {where}{name}", run, file, within, old, new, caught, kernel, nth, of)


BARRIERS = [
    _mutant("nobody arrives", "if (in_cluster()) __cluster_barrier_arrive();", NOTHING, NOT_ARRIVED),
    _mutant("nobody waits", "if (in_cluster()) __cluster_barrier_wait();", NOTHING, NOT_WAITED),
    _mutant("what came before is not waited for", "cluster_wait();", NOTHING, NOT_WAITED, "gather", of=2),
    _mutant("no barrier between writing and reading", "cluster_arrive(); cluster_wait();", NOTHING, TOO_EARLY,
            "gather"),
    _mutant("the others are not told", "cluster_arrive();", NOTHING, NOT_ARRIVED, "gather", of=2),
    _mutant("the others are not waited for", "cluster_wait();", NOTHING, f"{NOT_WAITED}|{TOO_EARLY}", "gather",
            nth=1, of=2),
    _mutant("some threads do not wait", "cluster_wait();", "if (threadIdx.y != 1) cluster_wait();",
            f"{NOT_WAITED}|{TOO_EARLY}", "gather", nth=1, of=2),
    _mutant("what other threads collect is not waited for", "__syncthreads();", NOTHING, EARLY, "gather"),
    _mutant("the others are not told of the end", "cluster_arrive();", NOTHING, NOT_ARRIVED, "gather", nth=1, of=2),
    _mutant("results before they are made", "__syncthreads();", NOTHING, RACE, "broadcast"),
    _mutant("no arrival at the beginning", "cluster_arrive();", NOTHING, NOT_ARRIVED, "run", _COLUMN),
    _mutant("no wait at the end", "cluster_wait();", NOTHING, _EXITS, "run", _COLUMN),
    _mutant("no arrival at the beginning", "cluster_arrive();", NOTHING, NOT_ARRIVED, "row_reduction_kernel",
            "kernels/row_reduction.cuh", _SEGMENT_RUN),
    _mutant("no wait at the end", "cluster_wait();", NOTHING, _EXITS, "row_reduction_kernel",
            "kernels/row_reduction.cuh", _SEGMENT_RUN),
    *(
        _mutant(name, old, NOTHING, caught, "reduce", _SEGMENTS, _SEGMENT_RUN, nth, 2)
        for name, old, caught, nth in (
            ("what came before is not waited for", "cluster_wait();", NOT_WAITED, 0),
            ("the others are not told", "cluster_arrive();", NOT_ARRIVED, 0),
            ("the others are not waited for", "cluster_wait();", f"{NOT_WAITED}|{TOO_EARLY}", 1),
            ("the others are not told of the end", "cluster_arrive();", NOT_ARRIVED, 1),
        )
    ),
]  # fmt: skip

_SLOT = "exchange[(i / N * blockDim.x + threadIdx.x) * N + i % N]"

EXCHANGES = [
    _mutant("every row shows its own", "threadIdx.y == 0", "true", RACE, "gather"),
    _mutant("the first array for all", _SLOT, "exchange[threadIdx.x * N + i % N]", "nothing has written", "gather"),
    _mutant("its own values for all", "of_peer(exchange, i / values)", "of_peer(exchange, blockIdx.z)", wrong("y"),
            "gather"),
    _mutant("the values of one block less", "int(gridDim.z) * values", "int(gridDim.z - 1) * values",
            "nothing has written", "gather"),
    _mutant("what the others read is overwritten", "exchange + values", "exchange + values - 1",
            f"{RACE}|{TOO_EARLY}", "gather"),
    _mutant("a block less", "rank < int(gridDim.z)", "rank < int(gridDim.z) - 1", wrong("grad_bn_weight"),
            "sum_over_cluster"),
    _mutant("every other block the other way round", "all[rank * sums + i]",
            "all[(blockIdx.z % 2 ? gridDim.z - rank : rank) * sums + i]", _ALIKE, "sum_over_cluster", run="alike"),
    _mutant("each block with a shift of its own", "means[0]", "means[blockIdx.z * stride]", _ALIKE,
            "moments_of_blocks", run="alike"),
    _mutant("without the blocks' own squares", "m2s[rank * stride]", "Acc(0)", wrong("y", "bn_running_var"),
            "moments_of_blocks"),
    _mutant("without the distances of their means", "count(rank) * distance * distance", "Acc(0)",
            wrong("y", "bn_running_var"), "moments_of_blocks"),
    _mutant("the last block counts rows that it lacks", "left < rows_per_block ? left : rows_per_block",
            "rows_per_block", wrong("bn_running_mean"), "moments_of_blocks"),
    _mutant("a block without rows has moments", "rank * rows_per_block < rows", "rank < int(gridDim.z)",
            nan("y"), "moments_of_blocks", run="cluster, few rows", nth=1, of=2),
    _mutant("no room to exchange", "cluster > 1 ? columns * work.exchange * (cluster + 1) : 0", "0", BEYOND_SHARED,
            "tile_of_columns", "column_shapes.cuh"),
    *(
        _mutant(name, old, new, caught, "reduce", _SEGMENTS, _SEGMENT_RUN)
        for name, old, new, caught in (
            ("a block less", "rank < int(gridDim.z)", "rank < int(gridDim.z) - 1", wrong("y")),
            ("its own values for all", "of_peer(mine + i, rank)", "of_peer(mine + i, blockIdx.z)", wrong("y")),
            ("every thread shows its own", "threadIdx.x == 0", "true", RACE),
        )
    ),
]  # fmt: skip

_LAST = "first_ + rows_per_block < p.rows ? first_ + rows_per_block : int(p.rows)"
_STORED = "blockIdx.z == 0 && threadIdx.y == 0 && columns_.any()"

ROWS = [
    _mutant(name, old, new, caught, None, _COLUMN, nth=nth, of=of)
    for name, old, new, caught, nth, of in (
        ("a row of the block before", "blockIdx.z * rows_per_block", "(blockIdx.z * rows_per_block + 69) % 70",
         f"{OTHER_BLOCK}|of shared memory", 0, 1),
        ("the last block has as many rows as the others", _LAST, "first_ + rows_per_block",
         r"reads .*\(read-only\), \d+ bytes past its end", 0, 1),
        ("the last row of each block is left out", _LAST, f"({_LAST}) - 1", nan("y"), 0, 1),
        ("rows of the whole column in a block's moments", "last_ - first_", "int(p_.rows)", wrong("y"), 2, 3),
        ("all blocks store the column's results", _STORED, "threadIdx.y == 0 && columns_.any()", OTHER_BLOCK, 0, 1),
    )
]  # fmt: skip

CLUSTERS = [*BARRIERS, *EXCHANGES, *ROWS]
