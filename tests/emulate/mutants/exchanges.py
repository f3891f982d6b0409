"""What the warps of a cluster that holds a row send each other: slots, sets of them, who waits for what."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.clusters import NOT_ARRIVED, NOT_WAITED, OTHER_BLOCK, TOO_EARLY
from tests.emulate.mutants.mutant import BLOCKS, EARLY, RACE, UNWRITTEN_SHARED, Mutant, nan, wrong


def _mutant(name, old, new, caught, kernel="row_kernel", nth=0, of=1, within=None, file="exchange.cuh"):
    return Mutant(f"exchange: {name}", "longest rows", file, within, old, new, caught, kernel, nth, of)


SEGMENT_EXCHANGES = [
    _mutant("nobody waits for the others to begin", "cluster_wait();", NOTHING,
            f"{NOT_WAITED}|no cluster barrier behind which that block has begun", nth=1, of=2),
    _mutant("nobody begins", "cluster_arrive();", NOTHING, NOT_ARRIVED, nth=1, of=2),
    _mutant("nothing is sent", "cluster_arrive();", NOTHING, NOT_ARRIVED, of=2),
    _mutant("nothing is waited for", "cluster_wait();", NOTHING, f"{NOT_WAITED}|{TOO_EARLY}|{EARLY}", of=2),
    _mutant("the others are not waited for", "wait_for_bytes(filled, number_ / 2 % 2);", NOTHING,
            f"{TOO_EARLY}|{EARLY}"),
    _mutant("one set of slots", "memory_ + set * (kValues * kClusterWarps)", "memory_", f"{OTHER_BLOCK}|{RACE}"),
    _mutant("sets of slots that overlap", "set * (kValues * kClusterWarps)", "set * kClusterWarps",
            f"{OTHER_BLOCK}|{RACE}"),
    _mutant("all values to one slot", "slot + i * kClusterWarps", "slot", f"{UNWRITTEN_SHARED}|{EARLY}"),
    _mutant("every warp of a block to one slot", "threadIdx.x / 32", "0", f"{UNWRITTEN_SHARED}|{EARLY}|{OTHER_BLOCK}"),
    _mutant("every block to the slots of the first", "blockIdx.z * (blockDim.x / 32)", "0",
            f"{UNWRITTEN_SHARED}|{EARLY}|{OTHER_BLOCK}"),
    _mutant("a block gets nothing", "rank < int(gridDim.z)", "rank < int(gridDim.z) - 1",
            f"{UNWRITTEN_SHARED}|{EARLY}"),
    _mutant("without the first warp", "warp < warps()", "warp > 0 && warp < warps()", wrong("grad_gemm_product"), None),
    _mutant("the first value for all", "all[i * kClusterWarps + warp]", "all[warp]", wrong("grad_gemm_product"), None),
    _mutant("a thread's own values", "sum_in_warp(32, first, more...);", NOTHING, wrong("grad_gemm_product"), None,
            of=2),
    _mutant("the first part of the row for all blocks", "(rank * kItems + i)", "(i)",
            f"{BLOCKS}|{OTHER_BLOCK}|{nan('grad_gemm_product')}", None, within="row_block", file="kernels/row.cuh"),
]  # fmt: skip
