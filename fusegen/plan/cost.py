"""How many instructions of arithmetic an element costs, over all sweeps of a program's schedules.

An addition whose operand is a product that nothing else uses is one fused multiply-add. Sums add their operand;
moments update sums around a pilot (`add_value`), or sum values and then distances, where they stay in registers.
A function says in its entry what it costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fusegen.ir.extent import CHANNEL, ROW
from fusegen.ir.functions.catalogue import known_of
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.model import Kernel, Pass, Program, Schedule

_PILOT_SUMS, _SUM_AND_DISTANCES = 3, 4
_PER_VECTOR = 0.25  # of what is computed once for the neighbouring columns of a thread, four in float32


def program_operations(program: Program) -> dict[str, float]:
    """Operations per element of each schedule, but that of panels: they are those of the split one."""
    return {schedule.kind: schedule_operations(schedule) for schedule in _different(program)}


def schedule_operations(schedule: Schedule) -> float:
    return sum(kernel_operations(kernel) for kernel in schedule.kernels)


def coefficient_operations(program: Program) -> int:
    """Operations outside the loops over elements."""
    kernels = [kernel for schedule in _different(program) for kernel in schedule.kernels]
    return sum(len(k.setup) + sum(len(p.results) for p in k.passes) for k in kernels)


def _different(program: Program) -> list[Schedule]:
    return [schedule for schedule in program.schedules if schedule.kind != "panel"]


def kernel_operations(kernel: Kernel) -> float:
    if kernel.kind in ("finalise", "total"):
        return 0
    total, held = 0.0, set()
    once = [node for node in kernel.setup if not _in_loop(kernel, node)]
    if kernel.kind in ("stream", "column"):
        total += _PER_VECTOR * sum(node.extent.is_segment for node in once) * len(kernel.passes)
    loads = {tensor.node for pass_ in kernel.passes for tensor in pass_.loads}
    for pass_ in kernel.passes:
        sinks = [*(tensor.node for tensor in pass_.stores), *(n for s in pass_.sums for n in s.operands)]
        total += _sweep(_values(kernel, sinks, loads | held), pass_.sums, sinks)
        moments = [node for node in pass_.sums if node.op == "moments"]
        total += len(moments) * (_SUM_AND_DISTANCES if kernel.kind == "row" else _PILOT_SUMS)
        if kernel.kind == "row":
            held |= {node.operands[0] for node in moments}
    return total


def _in_loop(kernel: Kernel, node: Node) -> bool:
    """Kernels whose threads stay in a row compute what varies over the channels for each element."""
    if kernel.kind not in ("row", "segment"):
        return False
    inner = kernel.groups == 1 and node.extent.is_segment and node.extent != ROW
    return node.extent == CHANNEL or inner


def _values(kernel: Kernel, sinks: Iterable[Node], there: set[Node]) -> list[Node]:
    """What one sweep computes for each element."""
    setup = {node for node in kernel.setup if _in_loop(kernel, node)}
    small = {tensor.node for tensor in kernel.vectors} | (_results(kernel.passes) | set(kernel.setup)) - setup
    needed = ancestors(sinks, there | small)
    return [n for n in needed if (n.extent.is_full or n in setup) and n not in there and not n.is_leaf]


def _results(passes: Sequence[Pass]) -> set[Node]:
    return {node for pass_ in passes for node in (*pass_.results, *pass_.sums)}


def _sweep(values: Sequence[Node], sums: Sequence[Node], sinks: Sequence[Node]) -> int:
    uses = Counter(operand for node in values for operand in node.operands)
    uses.update(sinks)
    single = {node for node in values if known_of(node).is_product and uses[node] == 1}
    total = sum(known_of(node).operations for node in values)
    total -= sum(node.op in ("add", "sub") and any(o in single for o in node.operands) for node in values)
    plain = [node for node in sums if node.op == "sum"]
    return total + len(plain) - sum(node.operands[0] in single for node in plain)
