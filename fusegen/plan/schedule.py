"""From what a program must compute to kernels: the alternatives, and the kernels of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fusegen.ir.graph import Node
from fusegen.plan.cost import Cost, schedule_cost
from fusegen.plan.kernel import KernelSpec, Known, check_stored
from fusegen.plan.model import Kernel, Phase, Program, Schedule, Tensor, draw_of
from fusegen.plan.needs import Needs
from fusegen.plan.schedule_kernels import ScheduleKernels, reduced
from fusegen.plan.units import Unit


@dataclass(frozen=True)
class Alternative:
    """A schedule to be. shared: how many of its kernels, the first ones, all alternatives begin with."""

    kind: str
    kernels: tuple[KernelSpec, ...]
    shared: int
    reason: str


class Scheduler:
    """Schedules one program.

    inputs: the tensors in memory. outputs: what must be computed.
    """

    def __init__(
        self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], reasons: Sequence[str] = ()
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.reasons = tuple(reasons)
        self.given = {tensor.node: tensor for tensor in inputs}
        self.needs = Needs(self.given, outputs)
        self.phases = self.needs.phases
        self.kernels = ScheduleKernels(name, self.needs)

    def program(self) -> Program:
        """The program with all its schedules; the last one fits every size."""
        used = set(self.needs.nodes)
        draws = tuple(node for node in self.needs.nodes if node.op == "draw")
        inputs = tuple(t for t in self.inputs if t.node in used or (draws and t.role == "seed"))
        constants = sorted({str(n.attribute) for n in used if n.op == "scalar"} | {draw_of(n).p for n in draws})
        groups = [phase.axes.blocks("C") for phase in self.phases] + [n.axes.blocks("C") for n in self.needs.nodes]
        schedules, known = self._schedules()
        scalar_reductions = self.kernels.scalar_reductions(known)
        for schedule in schedules:
            check_stored(self.outputs, (*schedule.kernels, *scalar_reductions))
        return Program(
            self.name,
            inputs,
            self.outputs,
            tuple(constants),
            tuple(schedules),
            scalar_reductions,
            next((found for found in groups if found is not None), None),
            (*self.reasons, *self._why_first()),
            tuple(self.phases),
            self.needs.terminal,
            tuple(self.needs.scalar_sums),
            self.kernels.first_resident,
            draws=draws,
        )

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """The cost of each alternative, by the kind of its schedule."""
        return {each.kind: schedule_cost(each.kernels, self.needs.nodes, self.given) for each in self.alternatives}

    # Schedules

    @cached_property
    def alternatives(self) -> list[Alternative]:
        """All schedules but the L2-resident one, which does with one kernel what the last one does with several."""
        start = self.kernels.first_resident
        resident = self.phases[start:]
        prefix = self.kernels.reduce_phases(0, start)
        found = []
        if resident:
            kind = "row" if resident[0].unit is not Unit.CHANNEL else "column"
            kernels = (*prefix, *(self.kernels.row(resident) if kind == "row" else self.kernels.column(resident)))
            found.append(Alternative(kind, kernels, len(prefix), self._why_resident(resident[0])))
        kind = "two_pass" if self.phases else "pointwise"
        kernels = (*prefix, *self.kernels.reduce_phases(start, len(self.phases)), *self.kernels.apply())
        return [*found, Alternative(kind, kernels, len(prefix), self._why_last(kind))]

    def _schedules(self) -> tuple[list[Schedule], Known]:
        """The schedules with their kernels, and what lies in memory after the last one."""
        schedules = []
        shared, begin = _built(self.alternatives[0].kernels[: self.alternatives[0].shared], self.given)
        for each in self.alternatives:
            kernels, known = _built(each.kernels[each.shared :], begin)
            cost = self.costs[each.kind].elements
            if each.kind == "two_pass" and self._l2_helps(kernels):
                schedules.append(Schedule("l2", self.kernels.l2(*kernels), self._why_l2(), cost))
            schedules.append(Schedule(each.kind, (*shared, *kernels), each.reason, cost))
        return schedules, known

    def _l2_helps(self, kernels: Sequence[Kernel]) -> bool:
        """Whether all there is to reduce before the results are columns, of tensors that the last pass reads again. The
        kernel has no values of rows, no tensors of fewer rows, and leaves sums but no moments to what follows."""
        if [phase.unit for phase in self.phases] != [Unit.CHANNEL] or self.kernels.sums_samples:
            return False
        partials, _, last, *_ = kernels
        if any(t.compact for part in (partials, last) for p in part.passes for t in p.loads):
            return False
        again = {t for p in partials.passes for t in p.loads} & {t for p in last.passes for t in p.loads}
        rows = any("N" in t.axes for part in (partials, last) for t in part.vectors)
        rows = rows or any(node.op == "draw" and not node.is_full for node in self.needs.nodes)
        return bool(again) and not rows and not any(node.op == "moments" for node in self.needs.terminal)

    def _why_first(self) -> list[str]:
        earlier, resident = self.phases[: self.kernels.first_resident], self.phases[self.kernels.first_resident :]
        if not earlier or not resident:
            return []
        before = " and ".join(dict.fromkeys(f"each {reduced(phase)}" for phase in earlier))
        return [f"{before} is reduced before the last passes, which reduce each {reduced(resident[0])}"]

    def _why_resident(self, phase: Phase) -> str:
        unit = {"row": "row", "group": "group of channels", "column": "tile of columns"}[reduced(phase)]
        places = {Unit.CHANNEL: "shared memory", Unit.ROW: "registers or shared memory"}
        place = places.get(phase.unit, "registers")
        return f"a {unit} stays in {place} from its reduction to its use: its kernel reads it once"

    def _why_l2(self) -> str:
        return "a tile of columns stays in the L2 from its reduction to its use: the memory is read once"

    def _why_last(self, kind: str) -> str:
        if kind == "pointwise" and not self.needs.reductions:
            return "nothing is reduced: one pass over memory"
        if kind == "pointwise":
            return "no result of a reduction is used element-wise: one pass over memory"
        if not self.kernels.has_last:
            return "for every size: each reduction phase reads its operands once"
        return "for every size: each reduction phase reads its operands once, the last pass once more"


def _built(specs: Sequence[KernelSpec], known: Mapping[Node, Tensor]) -> tuple[list[Kernel], Known]:
    """Kernels that run one after the other; what they leave in memory is known to those that follow."""
    kernels, known = [], dict(known)
    for spec in specs:
        kernels.append(spec.build(known))
        known |= {t.node: t for t in spec.vector_stores if t.role == "accumulator"}
    return kernels, known
