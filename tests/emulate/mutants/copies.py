"""Rows on their way to the tiles of a column kernel: what is asked for, where it goes, and who waits for it."""

from __future__ import annotations

from tests.emulate.mutants.mutant import BEYOND_SHARED, EARLY, UNWRITTEN_SHARED, Mutant, wrong

_FORWARD, _BACKWARD = "train_forward_column", "train_backward_column"
_PAST = r"reads .*\(read-only\), \d+ bytes past its end"
_NOTHING = "static_cast<void>(0);"


def _mutant(name, old, new, caught, within=_FORWARD, kernel=_FORWARD, run="more rows", file="kernels.cu", nth=0, of=1):
    if caught.startswith("(?="):  # a verdict on results names no kernel
        kernel = None
    return Mutant(f"{within}: {name}", run, old, new, caught, within, kernel, file, nth, of)


WAITS = [
    _mutant(name, old, new, UNWRITTEN_SHARED, kernel, kernel, nth=nth, of=of)
    for kernel in (_FORWARD, _BACKWARD)
    for name, old, new, nth, of in (
        ("a row too few is waited for", "wait_for_rows<kAhead - 1>();", "wait_for_rows<kAhead>();", 0, 1),
        ("no row is waited for", "wait_for_rows<kAhead - 1>();", _NOTHING, 0, 1),
        ("a row does not end", "end_row();", _NOTHING, 0, 1),
        ("a row less is ahead than is waited for", "i < kAhead", "i < kAhead - 1", 0, 1),
        ("no row is asked for ahead", "fetch();", _NOTHING, 0, 2),
        ("no further row is asked for", "fetch();", _NOTHING, 1, 2),
        ("one row again and again", "next += step;", _NOTHING, 0, 1),
    )
]

_OWN, _OTHER = "d_over_divide_value_tile", "matmul_product_tile"
_KEEP = "d_over_divide_value_tile[here.at] = d_over_divide_value_kept;"

PLACES = [
    _mutant("to the place of the row after", f"{_OTHER} + next.at", f"{_OTHER} + next.at + step.at",
            f"{UNWRITTEN_SHARED}|{BEYOND_SHARED}"),
    _mutant("to the place of the row before", f"{_OTHER} + next.at", f"{_OTHER} + next.at - step.at",
            r"writes byte -\d+ of the block's \d+ bytes of shared memory"),
    _mutant("from the row after", "next.row", "next.row + channels", _PAST),
    _mutant("a row too many", "next.at < end", "next.at <= end", _PAST),
    _mutant("rows without an end", "next.at < end", "true",
            f"(reads|is not) global memory|{BEYOND_SHARED}|not in its block's shared memory|exits with a copy"),
    _mutant("a row of another thread", "next += step;", "next += Place{int(blockDim.x), channels};", EARLY),
    _mutant("another array's tile", f"{_OWN} + next.at", f"reinterpret_cast<decltype({_OWN})>({_OTHER} + next.at)",
            UNWRITTEN_SHARED, _BACKWARD, _BACKWARD),
    _mutant("out of another array's tile", f"{_OWN} + here.at", f"static_cast<void*>({_OTHER} + here.at)",
            wrong("grad_matmul_product"), _BACKWARD),
    # The gradient is in the place of the value that is kept.
    _mutant("a value is kept where the next row's gradient is still to be read", _KEEP,
            "wait_for_rows<0>(); const int after = here.at + step.at;"
            "d_over_divide_value_tile[after < end ? after : here.at] = d_over_divide_value_kept;",
            wrong("grad_matmul_product"), _BACKWARD),
    _mutant("the gradient stays where the value should be", _KEEP, _NOTHING, wrong("grad_matmul_product"), _BACKWARD),
]  # fmt: skip

_COPY = "__pipeline_memcpy_async(to + w, from + w, sizeof(*to));"
_COPY_ONE = "__pipeline_memcpy_async(to + v, row + columns.at(v), sizeof(T));"

WORDS = [
    _mutant(name, old, new, caught, within, run=run, file="fetch.cuh")
    for name, within, run, old, new, caught in (
        ("nothing is copied", "fetch", "column", _COPY, _NOTHING, UNWRITTEN_SHARED),
        ("half of each word", "fetch", "column", "sizeof(*to)", "sizeof(*to) / 2", UNWRITTEN_SHARED),
        ("from another word", "fetch", "column", "from + w", "from + w + 1", _PAST),
        ("nothing is copied of single elements", "fetch", "odd columns", _COPY_ONE, _NOTHING, UNWRITTEN_SHARED),
        ("single elements to one place", "fetch", "odd columns", "to + v", "to", UNWRITTEN_SHARED),
        ("single elements of one column", "fetch", "odd columns", "columns.at(v)", "columns.at(0)", wrong("y")),
        ("nothing ends", "end_row", "column", "__pipeline_commit();", _NOTHING, UNWRITTEN_SHARED),
        ("one batch less", "wait_for_rows", "column", "kLeft", "kLeft + 1", UNWRITTEN_SHARED),
        ("no wait", "wait_for_rows", "odd columns", "__pipeline_wait_prior(kLeft);", _NOTHING, UNWRITTEN_SHARED),
    )
]  # fmt: skip

# What is too narrow to be copied alone comes by registers.
LOADS = [
    _mutant(name, old, new, caught, within, run="more rows, loaded", file=file, nth=nth, of=of)
    for name, within, file, old, new, caught, nth, of in (
        ("what was loaded is not written", "take", "fetch.cuh", "*place = loaded_;", _NOTHING, UNWRITTEN_SHARED, 0, 1),
        ("nothing is loaded", "fetch", "fetch.cuh", "loaded_ = load_pack(columns, row);", _NOTHING, wrong("y"), 0, 1),
        ("two rows are loaded before the first is taken", _FORWARD, "kernels.cu", "i < kAhead", "i < kAhead + 1",
         wrong("y"), 0, 1),
        ("the next row is loaded over the one at hand", _FORWARD, "kernels.cu", "wait_for_rows<kAhead - 1>();",
         "fetch();", wrong("y"), 0, 1),
        ("no further row is loaded", _BACKWARD, "kernels.cu", "fetch();", _NOTHING, wrong("grad_matmul_product"), 1,
         2),
    )
]  # fmt: skip

FETCHES = [*WAITS, *PLACES, *WORDS, *LOADS]
