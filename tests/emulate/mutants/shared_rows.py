"""Rows in shared memory: what is copied and waited for, and what the blocks of a cluster send each other."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.clusters import NOT_ARRIVED, NOT_WAITED, OTHER_BLOCK, TOO_EARLY
from tests.emulate.mutants.mutant import BLOCKS, EARLY, RACE, UNWRITTEN_SHARED, Mutant

_ROWS, _SLOTS, _EXCHANGE = "kernels/row_shared.cuh", "kernels/row_slots.cuh", "block_exchange.cuh"
_WRONG = "is off by"
_COPY = "__pipeline_memcpy_async(to + w, words + w, sizeof(*to));"

SHARED_ROWS = [
    Mutant(f"shared rows: {name}", "", file, within, old, new, caught, None)
    for name, file, within, old, new, caught in (
        ("no copy is waited for", _ROWS, "run", "wait_for_rows<0>();", NOTHING, UNWRITTEN_SHARED),
        ("copies of the first row do not end", _ROWS, "run", "end_row();", NOTHING, UNWRITTEN_SHARED),
        ("copies of the next row do not end", _ROWS, "run_pass", "if constexpr (kPass == kLastReading) end_row();",
         NOTHING, f"{_WRONG}|exits with a copy to shared memory"),
        ("nothing is copied", _SLOTS, "copy_words", _COPY, NOTHING, UNWRITTEN_SHARED),
        ("the next row before this one is read", _ROWS, "run_pass",
         "kPass == kLastReading && row + gridDim.x < p_.rows", "kPass == kFirst && row + gridDim.x < p_.rows", _WRONG),
        ("the last vector is whole", _ROWS, "each_vector", "vector - first_whole_ < whole_", "true",
         f"{BLOCKS}|bytes past its end"),
        ("the first vector is whole", _ROWS, "each_vector", "vector - first_whole_ >= 0", "true",
         f"{BLOCKS}|bytes before its"),
        ("nobody waits for the others to begin", _EXCHANGE, "begin", "cluster_wait();", NOTHING,
         f"{NOT_WAITED}|no cluster barrier behind which that block has begun"),
        ("nobody begins", _EXCHANGE, "begin", "cluster_arrive();", NOTHING, NOT_ARRIVED),
        ("the others are not waited for", _EXCHANGE, "exchange", "wait_for_bytes(filled, number_ / 2 % 2);", NOTHING,
         f"{TOO_EARLY}|{EARLY}"),
        ("one set of slots", _EXCHANGE, "slots", "set * (kValues * kClusterBlocks)", "0", f"{OTHER_BLOCK}|{RACE}"),
        ("every block to the slot of the first", _EXCHANGE, "exchange", "blockIdx.z * kValues", "0",
         f"{UNWRITTEN_SHARED}|{EARLY}|{OTHER_BLOCK}"),
        ("a block gets nothing", _EXCHANGE, "exchange", "threadIdx.x < gridDim.z", "threadIdx.x + 1 < gridDim.z",
         f"{UNWRITTEN_SHARED}|{EARLY}"),
        ("the first block alone", _EXCHANGE, "reduce", "rank < int(gridDim.z)", "rank < 1", _WRONG),
    )
]  # fmt: skip
