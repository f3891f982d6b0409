"""What the blocks of a cluster do together and each does alone: barriers, the order of sums, rows, results."""

from __future__ import annotations

from tests.emulate.mutants.mutant import BEYOND_SHARED, EARLY, RACE, Mutant, nan, wrong

_FORWARD, _BACKWARD = "train_forward_column", "train_backward_column"
OTHER_BLOCK = "which another block of the cluster has (written|read), with no cluster barrier in between"
TOO_EARLY = f"of shared memory, which nothing has written|{OTHER_BLOCK}"
NOT_ARRIVED = r"waits for the cluster's barrier at cluster.cuh:\d+ and has not arrived"
NOT_WAITED = r"arrives at the cluster's barrier at cluster.cuh:\d+ and has not waited"
_EXITS = "exits with no cluster barrier|the shared memory of a block that has exited"
NOTHING = "static_cast<void>(0);"
_ALIKE = r"rows that are alike differ in (y|grad_matmul_product)"


def _mutant(name, old, new, caught, within=None, kernel=_FORWARD, run="cluster", file="cluster.cuh", nth=0, of=1):
    where = f"{within}: " if within else ""
    return Mutant(f"cluster, {where}{name}", run, old, new, caught, within, kernel, file, nth, of)


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
    _mutant("results before they are made", "__syncthreads();", NOTHING, RACE, "spread"),
    *(
        _mutant(name, old, new, caught, kernel, kernel, file="kernels.cu")
        for kernel in (_FORWARD, _BACKWARD)
        for name, old, new, caught in (
            ("no arrival at the beginning", "cluster_arrive();", NOTHING, NOT_ARRIVED),
            ("no wait at the end", "cluster_wait();", NOTHING, _EXITS),
        )
    ),
]  # fmt: skip

BARRIERS += [
    *(
        _mutant(name, old, NOTHING, caught, kernel, kernel, "segments of a cluster", "kernels.cu")
        for kernel in ("forward_segments", "backward_segments")
        for name, old, caught in (
            ("no arrival at the beginning", "cluster_arrive();", NOT_ARRIVED),
            ("no wait at the end", "cluster_wait();", _EXITS),
        )
    ),
    *(
        _mutant(name, old, NOTHING, caught, "sum_over_segment", "forward_segments", "segments of a cluster",
                "segments.cuh", nth, 2)
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
            "gather", None),
    _mutant("the values of one block less", "int(gridDim.z) * values", "int(gridDim.z - 1) * values",
            "nothing has written", "gather"),
    _mutant("what the others read is overwritten", "exchange + values", "exchange + values - 1",
            f"{RACE}|{TOO_EARLY}", "gather"),
    _mutant("a block less", "rank < int(gridDim.z)", "rank < int(gridDim.z) - 1", wrong("grad_bn_weight"),
            "sum_over_cluster", None),
    _mutant("every other block the other way round", "all[rank * sums + i]",
            "all[(blockIdx.z % 2 ? gridDim.z - rank : rank) * sums + i]", _ALIKE, "sum_over_cluster", None, "alike"),
    _mutant("each block with a pilot of its own", "means[0]", "means[blockIdx.z * stride]", _ALIKE,
            "moments_of_blocks", None, "alike"),
    _mutant("without the blocks' own squares", "m2s[rank * stride]", "Acc(0)", wrong("y", "bn_running_var"),
            "moments_of_blocks", None),
    _mutant("without the distances of their means", "count(rank) * distance * distance", "Acc(0)",
            wrong("y", "bn_running_var"), "moments_of_blocks", None),
    _mutant("the last block counts rows that it lacks", "left < rows_per_block ? left : rows_per_block",
            "rows_per_block", wrong("bn_running_mean"), "moments_of_blocks", None),
    _mutant("a block without rows has moments", "rank * rows_per_block < rows", "rank < int(gridDim.z)",
            nan("y"), "moments_of_blocks", None, "cluster, few rows", nth=1, of=2),
    _mutant("no room to exchange", "cluster > 1 ? columns * work.exchange * (cluster + 1) : 0", "0", BEYOND_SHARED,
            "tile_of_columns", file="column_shapes.cuh"),
]  # fmt: skip

EXCHANGES += [
    _mutant(f"{name} of a segment", old, new, caught, "sum_over_segment", kernel, "segments of a cluster",
            "segments.cuh")
    for name, old, new, caught, kernel in (
        ("a block less", "rank < int(gridDim.z)", "rank < int(gridDim.z) - 1", wrong("y"), None),
        ("its own values for all", "of_peer(mine + i, rank)", "of_peer(mine + i, blockIdx.z)", wrong("y"), None),
        ("every thread shows its own", "threadIdx.x == 0", "true", RACE, "forward_segments"),
    )
]  # fmt: skip

_LAST = "first + rows_per_block < rows ? first + rows_per_block : int(rows)"
_STORED = "blockIdx.z == 0 && threadIdx.y == 0 && active"

ROWS = [
    _mutant(name, old, new, caught, within, kernel, file="kernels.cu")
    for name, old, new, caught, within, kernel in (
        ("a row of the block before", "blockIdx.z * rows_per_block", "(blockIdx.z * rows_per_block + 69) % 70",
         f"{OTHER_BLOCK}|of shared memory", _FORWARD, _FORWARD),
        ("the last block has as many rows as the others", _LAST, "first + rows_per_block",
         r"reads .*\(read-only\), \d+ bytes past its end", _FORWARD, _FORWARD),
        ("the last row of each block is left out", _LAST, f"({_LAST}) - 1", nan("y"), _FORWARD, None),
        ("rows of the whole column in a block's moments", "Acc(last - first)", "Acc(rows)", wrong("y"), _FORWARD, None),
        ("all blocks store the column's results", _STORED, "threadIdx.y == 0 && active", OTHER_BLOCK, _FORWARD,
         _FORWARD),
        ("all blocks store the parameters' gradients", _STORED, "threadIdx.y == 0 && active", OTHER_BLOCK, _BACKWARD,
         _BACKWARD),
    )
]  # fmt: skip

CLUSTERS = [*BARRIERS, *EXCHANGES, *ROWS]
