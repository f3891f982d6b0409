"""From what a program must compute to kernels: the alternatives, and the kernels of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fusegen.ir.graph import Node
from fusegen.plan.cost import Cost, schedule_cost
from fusegen.plan.kernel import KernelSpec, Known, PassSpec, check_stored
from fusegen.plan.model import Kernel, Phase, Program, Schedule, Tensor, draw_of
from fusegen.plan.needs import Needs
from fusegen.plan.units import Unit


def _reduced(phase: Phase) -> str:
    """What is reduced to one value."""
    return "column" if phase.unit is Unit.CHANNEL else phase.unit.value


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

    def program(self) -> Program:
        """The program with all its schedules; the last one fits every size."""
        used = set(self.needs.nodes)
        draws = tuple(node for node in self.needs.nodes if node.op == "draw")
        inputs = tuple(t for t in self.inputs if t.node in used or (draws and t.role == "seed"))
        constants = sorted({node.attribute for node in used if node.op == "scalar"} | {draw_of(n).p for n in draws})
        groups = [phase.axes.blocks("C") for phase in self.phases] + [n.axes.blocks("C") for n in self.needs.nodes]
        schedules, known = self._schedules()
        scalar_reductions = self._scalar_reductions(known)
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
            self.first_resident,
            draws=draws,
        )

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """What each alternative costs."""
        return {each.kind: schedule_cost(each.kernels, self.needs.nodes, self.given) for each in self.alternatives}

    @cached_property
    def first_resident(self) -> int:
        """The first of the last phases of one unit. None of rows where moments of columns come after them: kernels that
        keep rows leave sums to what follows, but no moments. Nor of columns where there are sums of samples, of
        whose rows a tile of columns has all."""
        start = len(self.phases)
        if start and self.phases[-1].unit is Unit.CHANNEL and self._sums_samples:
            return start
        while start and self.phases[start - 1].unit == self.phases[-1].unit:
            start -= 1
        moments = any(node.op == "moments" for node in self.needs.terminal)
        return len(self.phases) if moments and self.phases and self.phases[-1].unit is not Unit.CHANNEL else start

    # Schedules

    @cached_property
    def alternatives(self) -> list[Alternative]:
        """All schedules but the L2-resident one, which does with one kernel what the last one does with several."""
        start = self.first_resident
        resident = self.phases[start:]
        prefix = self._reduce_phases(0, start)
        found = []
        if resident:
            kind = "row" if resident[0].unit is not Unit.CHANNEL else "column"
            kernels = (*prefix, *(self._row(resident) if kind == "row" else self._column(resident)))
            found.append(Alternative(kind, kernels, len(prefix), self._why_resident(resident[0])))
        kind = "two_pass" if self.phases else "pointwise"
        kernels = (*prefix, *self._reduce_phases(start, len(self.phases)), *self._apply())
        return [*found, Alternative(kind, kernels, len(prefix), self._why_last(kind))]

    def _schedules(self) -> tuple[list[Schedule], Known]:
        """The schedules with their kernels, and what lies in memory after the last one."""
        schedules = []
        shared, begin = _built(self.alternatives[0].kernels[: self.alternatives[0].shared], self.given)
        for each in self.alternatives:
            kernels, known = _built(each.kernels[each.shared :], begin)
            cost = self.costs[each.kind].elements
            if each.kind == "two_pass" and self._l2_helps(kernels):
                schedules.append(Schedule("l2", self._l2(*kernels), self._why_l2(), cost))
            schedules.append(Schedule(each.kind, (*shared, *kernels), each.reason, cost))
        return schedules, known

    def _l2_helps(self, kernels: Sequence[Kernel]) -> bool:
        """Whether all there is to reduce before the results are columns, of tensors that the last pass reads again. The
        kernel has no values of rows, no tensors of fewer rows, and leaves sums but no moments to what follows."""
        if [phase.unit for phase in self.phases] != [Unit.CHANNEL] or self._sums_samples:
            return False
        partials, _, last, *_ = kernels
        if any(t.compact for part in (partials, last) for p in part.passes for t in p.loads):
            return False
        again = {t for p in partials.passes for t in p.loads} & {t for p in last.passes for t in p.loads}
        rows = any("N" in t.axes for part in (partials, last) for t in part.vectors)
        rows = rows or any(node.op == "draw" and not node.is_full for node in self.needs.nodes)
        return bool(again) and not rows and not any(node.op == "moments" for node in self.needs.terminal)

    def _why_first(self) -> list[str]:
        earlier, resident = self.phases[: self.first_resident], self.phases[self.first_resident :]
        if not earlier or not resident:
            return []
        before = " and ".join(dict.fromkeys(f"each {_reduced(phase)}" for phase in earlier))
        return [f"{before} is reduced before the last passes, which reduce each {_reduced(resident[0])}"]

    def _why_resident(self, phase: Phase) -> str:
        unit = {"row": "row", "group": "group of channels", "column": "tile of columns"}[_reduced(phase)]
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
        if not self.has_last:
            return "for every size: each reduction phase reads its operands once"
        return "for every size: each reduction phase reads its operands once, the last pass once more"

    def _reduce_phases(self, begin: int, end: int) -> list[KernelSpec]:
        """Kernels that bring the results of some phases to memory, from where later kernels read them."""
        found: list[KernelSpec] = []
        for position, phase in enumerate(self.phases[begin:end], begin + 1):
            stores = self.needs.stored(position)
            number = "" if len(self.phases) == 1 else f"_{position}"
            if phase.unit is not Unit.CHANNEL:
                name, about = f"{self.name}_row_reduction{number}", f"what each {_reduced(phase)} is reduced to"
                pass_ = PassSpec(phase.sums)
                found.append(
                    KernelSpec(
                        name, "row_reduction", [pass_], stores, groups=phase.axes.blocks("C") or 1, purpose=about
                    )
                )
            else:
                name, about = f"{self.name}_partials{number}", "column sums, one partial result per block of rows"
                found.append(
                    KernelSpec(name, "pointwise", [PassSpec(phase.sums)], partial_sums=phase.sums, purpose=about)
                )
                name, about = f"{self.name}_final_reduction{number}", "combines the partial results of each column"
                found.append(KernelSpec(name, "final_reduction", (), stores, finished=phase.sums, purpose=about))
        return found

    @property
    def has_last(self) -> bool:
        """Whether the pass behind the phases has anything to do."""
        return bool(self.needs.full_outputs or self.needs.terminal)

    @property
    def _last_pass(self) -> PassSpec:
        """Full results, and the column sums that nothing waits for."""
        return PassSpec(self.needs.terminal, self.needs.full_outputs)

    def _apply(self) -> list[KernelSpec]:
        """The last pass of a two-pass or pointwise schedule; none where all results are of rows."""
        if not self.has_last:
            return []
        suffix = "_apply" if self.phases else ""
        about = "every result in one pass" if not self.phases else "results, with what is reduced at hand"
        terminal = self.needs.terminal
        spec = KernelSpec(f"{self.name}{suffix}", "pointwise", [self._last_pass], partial_sums=terminal, purpose=about)
        stored = [t.name for level in range(1, self.needs.last) for t in self.needs.stored(level)]
        return [spec, *self._reduce_terminal(len(self.phases), stored)]

    def _reduce_terminal(self, known: int, stored: Sequence[str]) -> list[KernelSpec]:
        """known: the phases whose results are in memory."""
        terminal = self.needs.terminal
        if not terminal:
            return []
        stores = self.needs.stored_at_last(known, stored)
        found = []
        if of_samples := [tensor for tensor in stores if tensor.samples]:
            name, about = f"{self.name}_sample_sums", "sums of samples from partial results"
            sums = [node for node in terminal if node.op == "sample_sum"]
            found.append(KernelSpec(name, "sample_reduction", (), of_samples, finished=sums, purpose=about))
        if others := [tensor for tensor in stores if not tensor.samples]:
            name, about = f"{self.name}_column_sums", "column sums from partial results"
            sums = [node for node in terminal if node.op != "sample_sum"]
            found.append(KernelSpec(name, "final_reduction", (), others, finished=sums, purpose=about))
        return found

    @property
    def _sums_samples(self) -> bool:
        return any(node.op == "sample_sum" for node in self.needs.terminal)

    def _stored_before(self) -> list[str]:
        """The results of the phases before the resident ones."""
        return [t.name for level in range(1, self.first_resident + 1) for t in self.needs.stored(level)]

    def _row(self, phases: Sequence[Phase]) -> list[KernelSpec]:
        """One kernel that keeps a row or a group in registers, or a long row in shared memory, through all phases."""
        stored = self._stored_before()
        vectors = [t for t in self.needs.vector_outputs if t.name not in stored and "N" in t.axes]
        or_shared = " or shared memory" if phases[0].unit is Unit.ROW else ""
        spec = KernelSpec(
            f"{self.name}_row",
            "row",
            [*(PassSpec(phase.sums) for phase in phases), self._last_pass],
            vectors,
            partial_sums=self.needs.terminal,
            groups=phases[0].axes.blocks("C") or 1,
            purpose=f"each {_reduced(phases[0])} in registers{or_shared}",
        )
        return [spec, *self._reduce_terminal(self.first_resident, [*stored, *(t.name for t in vectors)])]

    def _column(self, phases: Sequence[Phase]) -> list[KernelSpec]:
        """One kernel that keeps a tile of columns in shared memory through all phases."""
        stores = self.needs.stored_at_last(self.first_resident, self._stored_before())
        passes = [*(PassSpec(phase.sums) for phase in phases), self._last_pass]
        return [
            KernelSpec(f"{self.name}_column", "column", passes, stores, purpose="each tile of columns in shared memory")
        ]

    def _l2(self, partials: Kernel, final: Kernel, apply_: Kernel, *others: Kernel) -> tuple[Kernel, ...]:
        """The kernels of the two-pass schedule with the first three of them as one."""
        parts = (partials, final, apply_)
        vectors: dict[str, Tensor] = {}
        made: set[str] = set()
        for part in parts:
            vectors |= {t.name: t for t in part.vectors if t.name not in made}
            made |= {t.name for t in part.writes}
        kernel = Kernel(
            name=f"{self.name}_l2",
            kind="l2",
            vectors=tuple(vectors.values()),
            setup=tuple(dict.fromkeys(node for part in parts for node in part.setup)),
            passes=tuple(pass_ for part in parts for pass_ in part.passes),
            partial_sums=apply_.partial_sums,
            purpose="each tile of columns in the L2",
            parts=parts,
        )
        return kernel, *others

    def _scalar_reductions(self, known: Known) -> tuple[Kernel, ...]:
        if not self.needs.scalar_outputs:
            return ()
        pass_ = PassSpec(tuple(self.needs.scalar_sums))
        name, about = f"{self.name}_scalar_reduction", "sums over all columns"
        return (KernelSpec(name, "scalar_reduction", [pass_], self.needs.scalar_outputs, purpose=about).build(known),)


def _built(specs: Sequence[KernelSpec], known: Mapping[Node, Tensor]) -> tuple[list[Kernel], Known]:
    """Kernels that run one after the other; what they leave in memory is known to those that follow."""
    kernels, known = [], dict(known)
    for spec in specs:
        kernels.append(spec.build(known))
        known |= {t.node: t for t in spec.vector_stores if t.role == "accumulator"}
    return kernels, known
