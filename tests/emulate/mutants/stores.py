"""Elements and values of channels that are skipped, for each kind of store."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import UNWRITTEN, Mutant, nan

_POINTWISE, _COLUMN, _ROW = "kernels/pointwise.cuh", "kernels/column.cuh", "kernels/row.cuh"
_STORE = "store_pack(here, to, element_of(tile), vector_end, vector);"
_TILE_STORE = "store_pack(columns_, row_at(to, here.row), vector);"
_ROW_STORE = "store_pack(columns[i], to, at, g.vector_end, pack);"
_TAKE = "take(one, packed, at, u == 0 && tile == begin + threadIdx.y, values[u], in[u]);"
_LANES = "for (int v = 0; v < kVec - 1; ++v) to[{row} + {columns}.at(v)] = {pack}.element[v];"


def _skips(run, file, cases):
    """What is skipped, the statement, the condition for it or what is there in its place, and the verdict."""
    return [
        Mutant(f"{run}, {file.partition('/')[2]}: skips {what}", run, file, None, old,
               new if new.endswith(";") else f"if ({new}) {old}", caught)
        for what, old, new, caught in cases
    ]  # fmt: skip


FULL = [
    *_skips("pointwise", _POINTWISE, (
        ("the last row", _STORE, "tile != tiles - 1", nan("y")),
        ("the first row", _STORE, "tile != 0", nan("y")),
        ("the last column", _STORE, "columns.first + kVec < p.channels", nan("y")),
        ("the last element of each vector", _STORE,
         _LANES.format(row="element_of(tile)", columns="here", pack="vector"), nan("y")),
        ("a block", _STORE, "blockIdx.x != 1", nan("y")),
        ("a block of rows", _STORE, "blockIdx.y != 2", nan("y")),
        ("a row of a batch", _TAKE, "u != kRowsInFlight - 2", nan("y")),
    )),
    *_skips("column", _COLUMN, (
        ("the last row", _TILE_STORE, "here.row != (p_.rows - 1) * p_.channels", nan("y")),
        ("the last column", _TILE_STORE, "columns_.first + kVec < p_.channels", nan("y")),
        ("the last element of each vector", _TILE_STORE,
         _LANES.format(row="here.row", columns="columns_", pack="vector"), nan("y")),
        ("a block", _TILE_STORE, "blockIdx.x != 1", nan("y")),
    )),
    *_skips("short rows", _ROW, (
        ("the last row", _ROW_STORE, "at < size - p.channels", nan("y")),
        ("the last column", _ROW_STORE, "columns[i].first + kVec < p.channels", nan("y")),
        ("the last vector of a thread", _ROW_STORE, "i + 1 < kItems", nan("y")),
        ("the last element of each vector", _ROW_STORE, _LANES.format(row="at", columns="columns[i]", pack="pack"),
         nan("y")),
        ("a block", _ROW_STORE, "blockIdx.x != 1", nan("y")),
    )),
    *_skips("segments", _POINTWISE, (("the last group", _STORE, "group_of[0] + 1 < p.groups", nan("y")),)),
]  # fmt: skip

_RESULT = "if (to != nullptr) store_values(columns_, to, value);"
_STATISTIC = "if (pointer != nullptr) store_value(pointer + at, k.*field);"
_SLOT = "store_partials( columns, p.partials, slot_of_block, kSlots, slot, p.channels, period, value);"
_ROW_SLOT = "store_values(columns, partials + n * channels, value[n][own]);"
_SEGMENT = "if (pointer != nullptr) store_value(pointer + item, known.*field);"

PER_CHANNEL = [
    *_skips("column", _COLUMN, (
        ("statistics", _RESULT, "columns_.first + kVec < p_.channels", UNWRITTEN),
    )),
    *_skips("two_pass", "kernels/final_reduction.cuh", (
        ("statistics", _STATISTIC, "at + 1 < p.channels", UNWRITTEN),
    )),
    Mutant("two_pass: skips the last channel", "two_pass", "kernels/final_reduction.cuh", "final_reduction_kernel",
           "column < p.channels", "column + 1 < p.channels", UNWRITTEN),
    *_skips("column", "kernels/scalar_reduction.cuh", (
        ("its only element", "if (pointer != nullptr) store_value(pointer, k.*field);", NOTHING, nan("grad_bias")),
    )),
    *_skips("two_pass", _POINTWISE, (
        ("a partial result", _SLOT, "columns.first + kVec < p.channels", UNWRITTEN),
        ("a block's partial results", _SLOT, "blockIdx.y != 2", UNWRITTEN),
    )),
    *_skips("short rows", "kernels/row_channels.cuh", (
        ("a partial result", _ROW_SLOT, "columns.first != 0", UNWRITTEN),
        ("a block's partial results", _ROW_SLOT, "blockIdx.x != 1", UNWRITTEN),
    )),
    Mutant("short rows: skips the statistics of the last group", "short rows", _ROW, None,
           "lane == 0 && rank == 0 && valid && segment < groups",
           "lane == 0 && rank == 0 && valid && segment + 1 < groups", nan("grad_gemm_product")),
    *_skips("segments", "kernels/row_reduction.cuh", (("a segment's statistics", _SEGMENT, "item != 0", UNWRITTEN),)),
]  # fmt: skip

STORES = [*FULL, *PER_CHANNEL]
