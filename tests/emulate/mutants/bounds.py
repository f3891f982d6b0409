"""Indices one too large or too small, workspaces that are too small, and misaligned vectors."""

from __future__ import annotations

from tests.emulate.mutants.mutant import BLOCKS, EARLY, MISALIGNED, UNWRITTEN, Mutant

_POINTWISE, _FINAL, _ROW = "kernels/pointwise.cuh", "kernels/final_reduction.cuh", "kernels/row.cuh"
_ELEMENTS = "kernels/elements.cuh"
_FULL = r"Buffer\(float32, \[70, 132\]\)"  # what the pointwise kernel reads and writes
_CHANNELS = r"Buffer\(float32, \[1, 132\]\)"
_PAST = r", \d+ bytes past its end"
_BEFORE = r", \d+ bytes before its start"
_LOAD = "load_pack(columns, from, row, vector_end)"
_STORE = "store_pack(here, to, element_of(tile), vector_end, vector);"
_TO_INPUT = """each([&](auto, auto* in) {
  using Out = std::remove_pointer_t<std::decay_t<decltype(to)>>;
  using In = std::remove_const_t<std::remove_pointer_t<decltype(in)>>;
  if constexpr (std::is_same_v<In, Out>) store_pack(here, const_cast<Out*>(in), element_of(tile), vector_end, vector);
}, p.reads);"""


def _mutants(file, kernel, cases):
    return [
        Mutant(name, run, file, within, old, new, caught, kernel, *(rest or (0, 1)))
        for name, run, within, old, new, caught, *rest in cases
    ]


INPUTS = [
    *_mutants(_ELEMENTS, "pointwise_kernel", (
        ("a vector past the end of an input", "pointwise", None, _LOAD, _LOAD.replace("from", "from + 4"),
         rf"reads .*{_FULL} \(read-only\){_PAST}"),
        ("a vector before the beginning of an input", "pointwise", None, _LOAD, _LOAD.replace("from", "from - 4"),
         rf"reads .*{_FULL} \(read-only\){_BEFORE}"),
    )),
    *_mutants(_POINTWISE, "pointwise_kernel", (
        ("a row past the end", "pointwise", None, "at >= full_end", "at > full_end",
         rf"reads .*{_FULL} \(read-only\){_PAST}", 0, 2),
        ("writes to an input", "pointwise", None, _STORE, _TO_INPUT, rf"writes .*{_FULL} \(read-only\), at element"),
        ("reads an output before it is written", "pointwise", None, _STORE,
         f"if (widen(to[element_of(tile) + here.first]) != 1) {_STORE}", rf"{UNWRITTEN}, .*{_FULL}, at element"),
    )),
    *_mutants("columns.cuh", None, (
        ("a column past the end", "two_pass", "tile_columns", "first < channels ? kVec : 0",
         "first <= channels ? kVec : 0", rf"(reads|writes) .*({_PAST}|{BLOCKS})"),
    )),
    *_mutants("kernels/column.cuh", "column_kernel", (
        ("a row of a tile past the end", "column", "run_passes", "here.at < end_", "here.at <= end_", EARLY, 0, 2),
    )),
    *_mutants(_ROW, "row_kernel", (
        ("a row of an iteration past the end", "short rows", None, "at < size", "at <= size",
         rf"writes .*Buffer\(float32, \[41, (2|264)\]\){_PAST}", 1, 2),
        ("a group too many", "five groups", None, "segment < groups ? (segment + 1) * length : 0",
         "(segment + 1) * length", rf"(reads|writes) .*{_PAST}"),
        ("a vector past the end of a row's last group", "short rows", None, "(segment + 1) * length",
         "(segment + 1) * length + 1", rf"reads .*Buffer\(float32, \[1, 264\]\) \(read-only\){_PAST}"),
    )),
    *_mutants("kernels/row_reduction.cuh", "row_reduction_kernel", (
        ("an element past the end of a segment", "longer segments", None, "(segment + 1) * length",
         "(segment + 1) * length + 1", rf"reads .*Buffer\(float32, \[(1|3), 2110\]\) \(read-only\){_PAST}"),
    )),
    *_mutants(_FINAL, "final_reduction_kernel", (
        ("one channel's parameter past the end", "two_pass", None, "read_at(pointer, channel)",
         "read_at(pointer, channel + (channel == p.channels - 1))", rf"reads .*{_CHANNELS}.*{_PAST}"),
    )),
    *_mutants("kernels/scalar_reduction.cuh", "scalar_reduction_kernel", (
        ("one channel too many of a sum over all", "column", None, "column < p.channels", "column <= p.channels",
         rf"{UNWRITTEN}|{_PAST}"),
    )),
]  # fmt: skip

_STATISTIC = "store_value(pointer + at, k.*field);"
_PARTIALS = "store_partials( columns, p.partials, slot_of_block, kSlots, slot, p.channels, period, value);"

OUTPUTS = [
    *_mutants(_POINTWISE, "pointwise_kernel", (
        ("a vector past the end of an output", "pointwise", None, _STORE, _STORE.replace("to,", "to + kVec,"),
         rf"writes .*{_FULL}(, which|{_PAST})"),
        ("an element past the end of an output", "pointwise", None, _STORE,
         f"{_STORE} if (tile == tiles - 1) to[p.rows * p.channels] = vector[0];",
         rf"writes .*{_FULL}, 0 bytes past its end"),
        ("an element before the beginning of an output", "pointwise", None, _STORE,
         f"{_STORE} if (tile == 0 && columns.first == 0) to[-1] = vector[0];",
         rf"writes .*{_FULL}, 4 bytes before its start"),
        ("every block writes the first one's partial results", "two_pass", None, _PARTIALS,
         _PARTIALS.replace("slot_of_block", "0"), rf"writes .*, {BLOCKS}"),
    )),
    Mutant("a partial result in the next block's place", "two_pass", _POINTWISE, None, _PARTIALS,
           _PARTIALS.replace("slot,", "slot + 1,"), rf"writes .*, {BLOCKS}|{UNWRITTEN}",
           "(pointwise|final_reduction)_kernel"),
    *_mutants(_FINAL, "final_reduction_kernel", (
        ("a channel past the end of the statistics", "two_pass", None, _STATISTIC,
         f"{_STATISTIC} if (at == p.channels - 1) store_value(pointer + at + 1, k.*field);",
         rf"writes .*{_CHANNELS}, 0 bytes past its end"),
    )),
    *_mutants("kernels/row_reduction.cuh", "row_reduction_kernel", (
        ("a segment past the end of the statistics", "segments", None, "store_value(pointer + item, known.*field);",
         "store_value(pointer + item + 1, known.*field);",
         rf"writes .*Buffer\(float32, \[41, 2\]\), 0 bytes past its end|{BLOCKS}"),
    )),
    *_mutants(_ROW, "row_kernel", (
        ("a row's statistics before the beginning", "short rows", None, "store_value(to + item, stored.*field);",
         "store_value(to + item - 1, stored.*field);",
         r"writes .*Buffer\(float32, \[41, 2\]\), 4 bytes before its start|which (another|thread)"),
    )),
]  # fmt: skip

_PARTIAL = "p.partials + block * kComponents * p.channels + column"

WORKSPACE = [
    Mutant("a workspace that is too small", "two_pass", "shapes.cuh", "take",
           "(count * int64_t(sizeof(T)) + 255) / 256 * 256",
           "(count * int64_t(sizeof(T)) + 255) / 256 * 256 - (measures_ ? 256 : 0)", rf"(reads|writes) .*{_PAST}"),
    Mutant("pieces of the workspace that overlap", "two_pass", "kernels/memory_passes.cuh", "take_workspace",
           "scratch_.take<typename P::Acc>(partials)", "scratch_.take<typename P::Acc>(p_.channels)",
           rf"(reads|writes) .*({_PAST}|, {BLOCKS})"),
    *_mutants(_FINAL, "final_reduction_kernel", (
        ("one block's partial results too many", "two_pass", "collect_column", _PARTIAL,
         _PARTIAL.replace("block *", "(block + 1) *"), rf"{UNWRITTEN}|reads .*{_PAST}"),
        ("partial results from before the beginning", "two_pass", "collect_column", _PARTIAL,
         _PARTIAL.replace("block *", "(block - 1) *"), rf"reads .*{_BEFORE}"),
    )),
]  # fmt: skip

ALIGNMENT = [
    *_mutants(_ELEMENTS, "pointwise_kernel", (
        ("a vector at an address of one element", "pointwise", None, _LOAD, _LOAD.replace("from", "from + 1"),
         MISALIGNED),
    )),
    *_mutants("kernels/entry.cuh", "pointwise_kernel", (
        ("vectors in tensors that are not aligned", "misaligned", None, "reinterpret_cast<uintptr_t>(at) % 16 == 0",
         "reinterpret_cast<uintptr_t>(at) % 4 == 0", MISALIGNED),
        ("vectors of a parameter that is not aligned", "misaligned bias", None,
         "!elements ? Aligned::kNone : others ? Aligned::kAll : Aligned::kElements",
         "!elements ? Aligned::kNone : Aligned::kAll", MISALIGNED),
        # Of the first row's end, or of another one's beginning.
        ("vectors in rows that do not start at one", "odd", None,
         "p.channels % kVec == 0 && groups_are", "p.channels % 2 == 0",
         rf"{MISALIGNED}|reads .*\(read-only\){_PAST}"),
    )),
    Mutant("vectors in groups that do not start at one", "odd groups", "kernels/entry.cuh", None,
           "p.group_length % kVec == 0", "true", MISALIGNED, "row_kernel"),
]  # fmt: skip

BOUNDS = [*INPUTS, *OUTPUTS, *WORKSPACE, *ALIGNMENT]
