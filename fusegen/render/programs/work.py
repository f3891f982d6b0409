"""What launch configurations are chosen by, besides what C++ sees in a program's struct."""

from __future__ import annotations

from dataclasses import dataclass

from fusegen.ir.graph import Node, ancestors
from fusegen.plan.launches.kinds import KERNELS, Stays
from fusegen.plan.programs.model import Kernel, Program
from fusegen.plan.programs.passes import Passes
from fusegen.plan.programs.units import Unit, unit_of


@dataclass(frozen=True)
class Work:
    """Constants of a program's struct, which templates/program.cu.j2 explains. tile_reads: names of tensors."""

    column_values: int
    channel_values_by: list[int]
    row_tensors_by: list[int]
    group_tensors_by: list[int]
    tile_reads: frozenset[str]
    has_row: bool
    row_constants: int
    row_values: int
    first_resident: int


def work(program: Program, passes: Passes) -> Work:
    row = passes.kernel(Stays.REGISTERS)
    tiles = passes.tile_reads() if passes.kernel(Stays.SHARED) else set()
    needed = [passes.tensors_of_elements(index) for index in range(len(passes.passes))]
    return Work(
        column_values=max(column_values(kernel) for kernel in program.kernels if kernel.kind != "l2"),
        channel_values_by=[sum(_is_of_column(n) for n in each.small) for each in passes.passes],
        row_tensors_by=[sum(t.unit is Unit.ROW for t in tensors) for tensors in needed],
        group_tensors_by=[sum(t.unit is Unit.GROUP for t in tensors) for tensors in needed],
        tile_reads=frozenset(tiles),
        has_row=row is not None,
        row_constants=len(_channel_tensors(row)) if row else 0,
        # A pass that sums what it reads makes none; zero says that there is no such kernel.
        row_values=max(1, len({node for pass_ in row.passes for node in pass_.values})) if row else 0,
        first_resident=program.first_resident,
    )


def _is_of_column(node: Node) -> bool:
    unit = unit_of(node.axes)
    return unit is Unit.CHANNEL or unit.of_samples


def _channel_tensors(kernel: Kernel) -> list[Node]:
    return [tensor.node for tensor in kernel.vectors if tensor.unit is Unit.CHANNEL]


def column_values(kernel: Kernel) -> int:
    """How many values of each of its columns a thread of a kernel keeps: constants, sums, and what follows."""
    kind = KERNELS[kernel.kind]
    if not kind.of_elements:
        return 0
    if kind.along_rows:
        return len(_channel_tensors(kernel)) + len(kernel.partial_sums)
    in_shared = kind.stays is Stays.SHARED
    stored = _only_stored(kernel) if in_shared else set()
    sums = [n for p in kernel.passes for n in p.sums] if in_shared else kernel.partial_sums
    found = [node for node in _channel_tensors(kernel) if node not in stored]
    found += _used_outside(kernel, [n for n in kernel.setup if unit_of(n.axes) is Unit.CHANNEL and n not in stored])
    if in_shared:
        for pass_ in kernel.passes:
            results = [node for node in pass_.results if node not in stored]
            at_once = set(_used_outside(kernel, results)) | {t.node for t in pass_.vector_stores}.intersection(results)
            found += at_once
    return len(found) + sum(3 if node.op == "moments" else 1 for node in sums)


def _used_outside(kernel: Kernel, nodes: list[Node]) -> list[Node]:
    """Those that other values of the kernel, or its stores, use."""
    inside = set(nodes)
    used = {operand for node in kernel.nodes if node not in inside for operand in node.operands}
    used |= {t.node for p in kernel.passes for t in (*p.stores, *p.vector_stores)}
    return [node for node in nodes if node in used]


def _only_stored(kernel: Kernel) -> set[Node]:
    """Values of a column that no pass needs: only the threads that store results of the column compute them."""
    known = {t.node for t in kernel.vectors}
    needed = [operand for p in kernel.passes for n in (*p.values, *p.sums) for operand in n.operands]
    needed += [t.node for p in kernel.passes for t in p.stores]
    inner = set(ancestors(needed, known))
    stored = [t.node for p in kernel.passes for t in p.vector_stores]
    found = {n for n in ancestors(stored, known) if not n.is_reduction and n not in inner}
    return {n for n in found if unit_of(n.axes) is Unit.CHANNEL}
