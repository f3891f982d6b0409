"""Rows on their way to the tiles of the column kernel: what is asked for, where it goes, and who waits for it."""

from __future__ import annotations

from tests.emulate.mutants.barriers import NOTHING
from tests.emulate.mutants.mutant import BEYOND_SHARED, EARLY, UNWRITTEN_SHARED, Mutant, wrong

_COLUMN, _FETCH = "kernels/column.cuh", "fetch.cuh"
_PAST = r"reads .*\(read-only\), \d+ bytes past its end"


def _mutant(name, old, new, caught, within=None, file=_COLUMN, run="more rows", nth=0, of=1):
    kernel = None if "(?=" in caught else "column_kernel"  # a verdict on results names no kernel
    return Mutant(f"copies: {name}", run, file, within, old, new, caught, kernel, nth, of)


WAITS = [
    _mutant(name, old, new, UNWRITTEN_SHARED, within)
    for name, within, old, new in (
        (
            "a row too few is waited for",
            "run_passes",
            "wait_for_rows<kPipelineDepth - 1>();",
            "wait_for_rows<kPipelineDepth>();",
        ),
        ("no row is waited for", "run_passes", "wait_for_rows<kPipelineDepth - 1>();", NOTHING),
        ("a row does not end", "fetch", "end_row();", NOTHING),
        ("a row less is ahead than is waited for", "run", "i < kPipelineDepth", "i < kPipelineDepth - 1"),
        ("no row is copied ahead", "run", "fetch();", NOTHING),
        ("no further row is copied", "run_passes", "fetch();", NOTHING),
        ("one row again and again", "fetch", "next_ += step_;", NOTHING),
    )
]

_TO, _OUT = "tiles_.template fetched<kField, E>() + next_.at", "tiles_.template fetched<kField, E>() + here.at"
_CACHE = "tiles_.template cached<kField>()[here.at] = cached_vector[kField];"

PLACES = [
    _mutant("to the place of the row after", _TO, f"{_TO} + step_.at", f"{UNWRITTEN_SHARED}|{BEYOND_SHARED}"),
    _mutant("to the place of the row before", _TO, f"{_TO} - step_.at",
            r"writes byte -\d+ of the block's \d+ bytes of shared memory"),
    _mutant("from the row after", "row_at(from, next_.row)", "row_at(from, next_.row + p_.channels)", _PAST),
    _mutant("a row too many", "next_.at < end_", "next_.at <= end_", _PAST),
    _mutant("rows without an end", "next_.at < end_", "true",
            f"(reads|is not) global memory|{BEYOND_SHARED}|not in its block's shared memory|exits with a copy"),
    _mutant("a row of another thread", "next_ += step_;", "next_ += Place{int(blockDim.x), p_.channels};", EARLY),
    # The gradient is in the place of the value that is cached, the product in a tile of its own.
    _mutant("out of another array's tile", _OUT,
            "reinterpret_cast<decltype(tiles_.template fetched<kField, E>())>(tiles_.memory) + here.at",
            wrong("grad_matmul_product")),
    _mutant("a value is cached where the next row's gradient is still to be read", _CACHE,
            "wait_for_rows<0>(); const int after = here.at + step_.at;"
            "tiles_.template cached<kField>()[after < end_ ? after : here.at] = cached_vector[kField];",
            wrong("grad_matmul_product")),
    _mutant("the gradient stays where the value should be", _CACHE, NOTHING, wrong("grad_matmul_product")),
]  # fmt: skip

_COPY = "__pipeline_memcpy_async(to + w, from + w, sizeof(*to));"
_COPY_ONE = "__pipeline_memcpy_async(to + v, row + columns.at(v), sizeof(T));"

WORDS = [
    _mutant(name, old, new, caught, within, _FETCH, run)
    for name, within, run, old, new, caught in (
        ("nothing is copied", None, "column", _COPY, NOTHING, UNWRITTEN_SHARED),
        ("half of each word", None, "column", "sizeof(*to)", "sizeof(*to) / 2", UNWRITTEN_SHARED),
        ("from another word", None, "column", "from + w", "from + w + 1", _PAST),
        ("nothing is copied of single elements", None, "odd columns", _COPY_ONE, NOTHING, UNWRITTEN_SHARED),
        ("single elements to one place", None, "odd columns", "to + v", "to", UNWRITTEN_SHARED),
        ("single elements of one column", None, "odd columns", "columns.at(v)", "columns.at(0)", wrong("y")),
        ("nothing ends", "end_row", "column", "__pipeline_commit();", NOTHING, UNWRITTEN_SHARED),
        ("one batch less", "wait_for_rows", "column", "kLeft", "kLeft + 1", UNWRITTEN_SHARED),
        ("no wait", "wait_for_rows", "odd columns", "__pipeline_wait_prior(kLeft);", NOTHING, UNWRITTEN_SHARED),
    )
]  # fmt: skip

# What is too narrow to be copied alone comes by registers.
LOADS = [
    _mutant(f"loaded, {name}", old, new, caught, within, file, "odd columns, 16 bits")
    for name, within, file, old, new, caught in (
        ("what was loaded is not written", None, _FETCH, "*place = loaded_;", NOTHING, UNWRITTEN_SHARED),
        ("nothing is loaded", None, _FETCH, "loaded_ = load_pack(columns, row);", NOTHING, wrong("y")),
        ("two rows are loaded before the first is taken", "run", _COLUMN, "i < kPipelineDepth",
         "i < kPipelineDepth + 1", wrong("y")),
        ("the next row is loaded over the one at hand", "run_passes", _COLUMN, "wait_for_rows<kPipelineDepth - 1>();",
         "fetch();", wrong("y")),
        ("no further row is loaded", "run_passes", _COLUMN, "fetch();", NOTHING, wrong("y")),
    )
]  # fmt: skip

FETCHES = [*WAITS, *PLACES, *WORDS, *LOADS]
