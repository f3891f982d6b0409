"""A program with the schedules of all kinds that it has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from fusegen.plan.programs.model import Program, Schedule, Tensor, draw_of
from fusegen.plan.programs.phases import PhaseAnalysis
from fusegen.plan.schedules.cost import Cost
from fusegen.plan.schedules.kernel import Known, check_stored
from fusegen.plan.schedules.schedule_kernels import ScheduleKernels
from fusegen.plan.schedules.schedule_kinds import SCHEDULE_KINDS, built, why_first


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
        self.analysis = PhaseAnalysis({tensor.node: tensor for tensor in inputs}, outputs)
        self.kernels = ScheduleKernels(name, self.analysis)

    def program(self) -> Program:
        """The program with all its schedules; the last one fits every size."""
        used = set(self.analysis.nodes)
        draws = tuple(node for node in self.analysis.nodes if node.op == "draw")
        inputs = tuple(t for t in self.inputs if t.node in used or (draws and t.role == "seed"))
        constants = sorted({str(n.attribute) for n in used if n.op == "scalar"} | {draw_of(n).p for n in draws})
        groups = [phase.axes.blocks("C") for phase in self.analysis.phases]
        groups += [node.axes.blocks("C") for node in self.analysis.nodes]
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
            (*self.reasons, *why_first(self.kernels)),
            tuple(self.analysis.phases),
            self.analysis.terminal,
            tuple(self.analysis.scalar_sums),
            self.kernels.first_resident,
            draws=draws,
        )

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """The cost of each schedule that has one of its own, by its kind. No kernel is built for this."""
        own = [kind for kind in SCHEDULE_KINDS.values() if kind.has_own_cost and kind.eligible(self.kernels)]
        return {kind.name: kind.cost(self.kernels) for kind in own}

    def _schedules(self) -> tuple[list[Schedule], Known]:
        """The schedules with their kernels, and what lies in memory after the last one."""
        first, known = built(self.kernels.first_phases(), self.analysis.given)
        after = known
        schedules = []
        for kind in SCHEDULE_KINDS.values():
            if kind.eligible(self.kernels):
                schedule, after = kind.schedule(self.kernels, first, known)
                schedules.append(schedule)
        return schedules, after
