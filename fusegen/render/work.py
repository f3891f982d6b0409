"""What a launcher is told of its kernels, by which it chooses a schedule and launch shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fusegen.plan.model import Kernel, Program, Schedule
from fusegen.render.contexts import KernelContext

Contexts = Mapping[str, KernelContext]

STREAMS = {"stores": "kStores", "sum": "kSum", "sums": "kSums"}
"""The launch shapes that streams of a schedule share, and StreamWork of templates/support/shapes.cuh."""


def row_work(contexts: Contexts, program: Program, schedule: Schedule, row: Kernel) -> str:
    """RowWork of templates/support/row_work.cuh."""
    context = contexts[row.name]
    values = len({node for pass_ in row.passes for node in pass_.values})
    exchange = f"{context.row_exchange('kRow')} * sizeof(Acc)"  # of long segments, whose threads are never wide
    staged = f", kStagedBytes, kSharedBytes - {exchange}" if context.staged_arrays else ""
    again = _read_again(contexts, program, schedule)
    counts = f"{context.row_blocks}, {len(context.column_loads)}, {again}, {values}"
    cluster = "kMostCluster" if context.clusters else "1"
    threads = f"row_most_threads({_bool(context.large)}{staged})"
    return f"{len(row.partial_sums)}, {counts}, sizeof(T), {threads}, {cluster}"


def row_staged(contexts: Contexts, row: Kernel) -> str:
    """C++: the bytes of shared memory in which a thread keeps what it has of its columns; empty where none does."""
    counts = Counter(type_ for _, type_ in contexts[row.name].staged_arrays)
    sizes = " + ".join(f"{f'{n} * ' if n > 1 else ''}sizeof({type_})" for type_, n in counts.items())
    vector = "kRow" if row.partial_sums else "kVec"
    return f"2 * {vector} * ({sizes})" if sizes else ""


def _bool(value: bool) -> str:
    return "true" if value else "false"


def column_work(contexts: Contexts, program: Program, schedule: Schedule, column: Kernel) -> str:
    """ColumnWork of templates/support/column_work.cuh."""
    context = contexts[column.name]
    sizes = " + ".join(f"sizeof({tile.type})" for tile in context.tiles)
    sums = f"{context.widest_exchange} * sizeof(Acc)" if context.widest_exchange > 1 else "sizeof(Acc)"
    moved = len(context.loads) + sum(len(stage.sweep.stores) for stage in context.stages)
    again = _read_again(contexts, program, schedule)
    kept = _kept(contexts, program)
    return f"{sizes}, sizeof(T), {sums}, {context.exchanged} * sizeof(Acc), {moved}, {again}, {kept}"


def stream_work(context: KernelContext, stream: Kernel) -> str:
    """Which of STREAMS a stream kernel is."""
    if not stream.partial_sums:
        return "stores"
    stores = any(stage.sweep.stores for stage in context.stages)
    return "sums" if stores or len(context.loads) > 1 else "sum"


def _kept(contexts: Contexts, program: Program) -> str:
    """C++: the bytes of an element that panels keep from their sums to their results."""
    panel = next((kernel for kernel in program.kernels if kernel.kind == "panel"), None)
    if panel is None:
        return "0"
    partials, _, results = contexts[panel.name].parts
    return " + ".join(f"sizeof({load.type})" for load in results.loads if load in partials.loads)


def _read_again(contexts: Contexts, program: Program, schedule: Schedule) -> int:
    """How many tensors with all elements the split schedule reads more often than this one: what runs before both
    alike is in both counts."""
    reads = {each.kind: sum(len(contexts[kernel.name].loads) for kernel in each.kernels) for each in program.schedules}
    return reads["split"] - reads[schedule.kind]
