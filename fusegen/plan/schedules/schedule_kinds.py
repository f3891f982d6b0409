"""The kinds of schedules: which programs have one, its kernels, its cost and the reason that plans give for it.

Which of a program's schedules runs a call, its launcher decides: templates/support/kernels/schedule_list.cuh.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from fusegen.ir.graph import Node
from fusegen.plan.launches.kinds import L2, PERSISTENT, TWO_PASS
from fusegen.plan.programs.model import Kernel, Schedule, Tensor
from fusegen.plan.programs.units import Unit
from fusegen.plan.schedules.cost import Cost, schedule_cost
from fusegen.plan.schedules.kernel import KernelSpec, Known
from fusegen.plan.schedules.schedule_kernels import ScheduleKernels, reduced


class ScheduleKind(ABC):
    """name: as plans, reports and launchers have it. forced: what Shapes.schedule calls it, None where it is the only
    one of its programs. has_own_cost: whether its arithmetic is not that of another one of the program."""

    name: ClassVar[str]
    forced: ClassVar[str | None]
    has_own_cost: ClassVar[bool] = True

    @abstractmethod
    def eligible(self, of: ScheduleKernels) -> bool:
        """Whether a program has it."""

    @abstractmethod
    def specs(self, of: ScheduleKernels) -> list[KernelSpec]:
        """Its kernels in order, but for those of the phases that all schedules of the program take from memory."""

    @abstractmethod
    def reason(self, of: ScheduleKernels) -> str:
        """Why it is there, as a clause."""

    def cost(self, of: ScheduleKernels) -> Cost:
        """Instructions of arithmetic, with those phases."""
        return schedule_cost((*of.first_phases(), *self.specs(of)), of.analysis.nodes, of.analysis.given)

    def schedule(self, of: ScheduleKernels, first: Sequence[Kernel], known: Known) -> tuple[Schedule, Known]:
        """The schedule, and what lies in memory after it. first: the kernels of those phases, known: what these leave
        there."""
        kernels, after = built(self.specs(of), known)
        return Schedule(self.name, (*first, *kernels), self.reason(of), self.cost(of).elements), after


class Row(ScheduleKind):
    """The last phases reduce rows or groups, which stay in registers or shared memory."""

    name, forced = "row", PERSISTENT

    def eligible(self, of: ScheduleKernels) -> bool:
        return bool(of.resident) and of.resident[0].unit is not Unit.CHANNEL

    def specs(self, of: ScheduleKernels) -> list[KernelSpec]:
        return of.row(of.resident)

    def reason(self, of: ScheduleKernels) -> str:
        if of.resident[0].unit is Unit.ROW:
            return _stays("row", "registers or shared memory")
        return _stays("group of channels", "registers")


class Column(ScheduleKind):
    """The last phases reduce columns, of which tiles stay in shared memory."""

    name, forced = "column", PERSISTENT

    def eligible(self, of: ScheduleKernels) -> bool:
        return bool(of.resident) and of.resident[0].unit is Unit.CHANNEL

    def specs(self, of: ScheduleKernels) -> list[KernelSpec]:
        return of.column(of.resident)

    def reason(self, of: ScheduleKernels) -> str:
        return _stays("tile of columns", "shared memory")


class FromMemory(ScheduleKind):
    """Each pass reads memory: it fits every size."""

    def specs(self, of: ScheduleKernels) -> list[KernelSpec]:
        return [*of.last_phases(), *of.apply()]


class TwoPass(FromMemory):
    """Something is reduced before the results."""

    name, forced = "two_pass", TWO_PASS

    def eligible(self, of: ScheduleKernels) -> bool:
        return bool(of.analysis.phases)

    def reason(self, of: ScheduleKernels) -> str:
        once = "for every size: each reduction phase reads its operands once"
        return f"{once}, the last pass once more" if of.has_last else once


class Pointwise(FromMemory):
    """Nothing is."""

    name, forced = "pointwise", None

    def eligible(self, of: ScheduleKernels) -> bool:
        return not of.analysis.phases

    def reason(self, of: ScheduleKernels) -> str:
        if of.analysis.reductions:
            return "no result of a reduction is used element-wise: one pass over memory"
        return "nothing is reduced: one pass over memory"


class L2Resident(TwoPass):
    """One kernel for the first three of the two-pass schedule, between whose passes columns stay in the L2."""

    name, forced, has_own_cost = "l2", L2, False

    def eligible(self, of: ScheduleKernels) -> bool:
        """Whether all there is to reduce before the results are columns, of tensors that the last pass reads again. The
        kernel has no values of rows or samples, no windows, no tensors of fewer rows, and leaves sums but no moments to
        what follows."""
        from_memory = of.sums_samples or of.analysis.from_memory
        if [phase.unit for phase in of.analysis.phases] != [Unit.CHANNEL] or from_memory:
            return False
        (partials, _, last, *_), _ = built(self.specs(of), of.analysis.given)
        if any(t.compact for part in (partials, last) for p in part.passes for t in p.loads):
            return False
        again = {t for p in partials.passes for t in p.loads} & {t for p in last.passes for t in p.loads}
        rows = any("N" in t.axes for part in (partials, last) for t in part.vectors)
        rows = rows or any(node.op == "draw" and not node.is_full for node in of.analysis.nodes)
        return bool(again) and not rows and not any(node.op == "moments" for node in of.analysis.terminal)

    def reason(self, of: ScheduleKernels) -> str:
        return "a tile of columns stays in the L2 from its reduction to its use: the memory is read once"

    def schedule(self, of: ScheduleKernels, first: Sequence[Kernel], known: Known) -> tuple[Schedule, Known]:
        kernels, after = built(self.specs(of), known)
        return Schedule(self.name, of.l2(*kernels), self.reason(of), self.cost(of).elements), after


SCHEDULE_KINDS: dict[str, ScheduleKind] = {
    kind.name: kind for kind in (Row(), Column(), L2Resident(), TwoPass(), Pointwise())
}
"""In the order in which launchers consider them; the last of a program fits every size."""


def built(specs: Sequence[KernelSpec], known: Mapping[Node, Tensor]) -> tuple[list[Kernel], Known]:
    """Kernels that run one after the other; what they leave in memory is known to those that follow."""
    kernels, known = [], dict(known)
    for spec in specs:
        kernels.append(spec.build(known))
        known |= {t.node: t for t in spec.vector_stores if t.role == "accumulator"}
    return kernels, known


def why_first(of: ScheduleKernels) -> list[str]:
    """Why some phases are not those of a persistent kernel: a note, where there are such."""
    earlier = of.analysis.phases[: of.first_resident]
    if not earlier or not of.resident:
        return []
    before = " and ".join(dict.fromkeys(f"each {reduced(phase)}" for phase in earlier))
    return [f"{before} is reduced before the last passes, which reduce each {reduced(of.resident[0])}"]


def _stays(what: str, place: str) -> str:
    return f"a {what} stays in {place} from its reduction to its use: its kernel reads it once"
