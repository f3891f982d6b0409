"""From what a program must compute to kernels: the alternatives, and the kernels of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fusegen.ir.graph import Node
from fusegen.plan.cost import Cost, schedule_cost
from fusegen.plan.kernel import Draft, Known, Sweep
from fusegen.plan.model import Kernel, Phase, Program, Schedule, Tensor
from fusegen.plan.needs import Needs
from fusegen.plan.units import Unit


def _reduced(phase: Phase) -> str:
    """What is reduced to one value."""
    return "column" if phase.unit is Unit.CHANNEL else str(phase.unit)


@dataclass(frozen=True)
class Alternative:
    """A schedule to be. shared: how many of its kernels, the first ones, all alternatives begin with."""

    kind: str
    drafts: tuple[Draft, ...]
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
        inputs = tuple(t for t in self.inputs if t.node in used)
        constants = sorted({node.attribute for node in used if node.op == "scalar"})
        groups = [phase.axes.blocks("C") for phase in self.phases] + [n.axes.blocks("C") for n in self.needs.nodes]
        schedules, known = self._schedules()
        return Program(
            self.name,
            inputs,
            self.outputs,
            tuple(constants),
            tuple(schedules),
            self._totals(known),
            next((found for found in groups if found is not None), None),
            (*self.reasons, *self._why_first()),
            tuple(self.phases),
            self.needs.terminal,
            tuple(self.needs.total_sums),
            self.first_resident,
        )

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """What each alternative costs."""
        return {each.kind: schedule_cost(each.drafts, self.needs.nodes, self.given) for each in self.alternatives}

    @cached_property
    def first_resident(self) -> int:
        """The first of the last phases of one unit."""
        start = len(self.phases)
        while start and self.phases[start - 1].unit == self.phases[-1].unit:
            start -= 1
        return start

    # Schedules

    @cached_property
    def alternatives(self) -> list[Alternative]:
        """All schedules but that of panels, which does with one kernel what the last one does with several."""
        start = self.first_resident
        resident = self.phases[start:]
        prefix = self._reduce_phases(0, start)
        found = []
        if resident:
            kind = "column" if resident[0].unit is Unit.CHANNEL else "row"
            drafts = (*prefix, *(self._row(resident) if kind == "row" else self._column(resident)))
            found.append(Alternative(kind, drafts, len(prefix), self._why_resident(resident[0])))
        kind = "split" if self.phases else "stream"
        drafts = (*prefix, *self._reduce_phases(start, len(self.phases)), *self._apply())
        return [*found, Alternative(kind, drafts, len(prefix), self._why_split(kind))]

    def _schedules(self) -> tuple[list[Schedule], Known]:
        """The schedules with their kernels, and what lies in memory behind the last one."""
        schedules = []
        shared, begin = _built(self.alternatives[0].drafts[: self.alternatives[0].shared], self.given)
        for each in self.alternatives:
            kernels, known = _built(each.drafts[each.shared :], begin)
            cost = self.costs[each.kind].elements
            if each.kind == "split" and self._panels_help(kernels):
                schedules.append(Schedule("panel", self._panel(*kernels), self._why_panel(), cost))
            schedules.append(Schedule(each.kind, (*shared, *kernels), each.reason, cost))
        return schedules, known

    def _panels_help(self, kernels: Sequence[Kernel]) -> bool:
        """Whether all there is to reduce before the results are columns, of tensors that the last pass reads again. The
        kernel has no values of rows, and leaves sums but no moments to what follows."""
        if [phase.unit for phase in self.phases] != [Unit.CHANNEL]:
            return False
        partials, _, last, *_ = kernels
        again = {t for p in partials.passes for t in p.loads} & {t for p in last.passes for t in p.loads}
        rows = any("N" in t.axes for part in (partials, last) for t in part.vectors)
        return bool(again) and not rows and not any(node.op == "moments" for node in self.needs.terminal)

    def _why_first(self) -> list[str]:
        earlier, resident = self.phases[: self.first_resident], self.phases[self.first_resident :]
        if not earlier:
            return []
        before = " and ".join(dict.fromkeys(f"each {_reduced(phase)}" for phase in earlier))
        return [f"{before} is reduced before the last stage, which reduces each {_reduced(resident[0])}"]

    def _why_resident(self, phase: Phase) -> str:
        unit = {"row": "row", "group": "group of channels", "column": "tile of columns"}[_reduced(phase)]
        place = "shared memory" if phase.unit is Unit.CHANNEL else "registers"
        return f"a whole {unit} stays in {place} from its reduction to its use: its kernel reads it once"

    def _why_panel(self) -> str:
        return "a panel of columns stays in the L2 from its reduction to its use: the memory is read once"

    def _why_split(self, kind: str) -> str:
        if kind == "stream" and not self.needs.reductions:
            return "nothing is reduced: one pass over memory"
        if kind == "stream":
            return "no result of a reduction is used element-wise: one pass over memory"
        return "for every size: each reduction phase reads its operands once, the last pass once more"

    def _reduce_phases(self, begin: int, end: int) -> list[Draft]:
        """Kernels that bring the results of some phases to memory, from where later kernels read them."""
        found: list[Draft] = []
        for position, phase in enumerate(self.phases[begin:end], begin + 1):
            keep = self.needs.kept(position)
            number = "" if len(self.phases) == 1 else f"_{position}"
            if phase.unit is not Unit.CHANNEL:
                name, about = f"{self.name}_segments{number}", f"what each {_reduced(phase)} is reduced to"
                sweep = Sweep(phase.sums)
                found.append(Draft(name, "segment", [sweep], keep, groups=phase.axes.blocks("C") or 1, purpose=about))
            else:
                name, about = f"{self.name}_partials{number}", "column sums, one partial result per block of rows"
                found.append(Draft(name, "stream", [Sweep(phase.sums)], partial_sums=phase.sums, purpose=about))
                name, about = f"{self.name}_finalise{number}", "combines the partial results of each column"
                found.append(Draft(name, "finalise", (), keep, finished=phase.sums, purpose=about))
        return found

    @property
    def _last_sweep(self) -> Sweep:
        """Full results, and the column sums that nothing waits for."""
        return Sweep(self.needs.terminal, self.needs.full_outputs)

    def _apply(self) -> list[Draft]:
        """The last pass of a split or stream schedule."""
        suffix = "_apply" if self.phases else ""
        about = "every result in one pass" if not self.phases else "results, with what is reduced at hand"
        terminal = self.needs.terminal
        draft = Draft(f"{self.name}{suffix}", "stream", [self._last_sweep], partial_sums=terminal, purpose=about)
        stored = [t.name for level in range(1, self.needs.last) for t in self.needs.kept(level)]
        return [draft, *self._finalise_terminal(len(self.phases), stored)]

    def _finalise_terminal(self, known: int, stored: Sequence[str]) -> list[Draft]:
        """known: the phases whose results are in memory."""
        terminal = self.needs.terminal
        if not terminal:
            return []
        keep = self.needs.kept_at_last(known, stored)
        about = "column sums from partial results"
        return [Draft(f"{self.name}_column_sums", "finalise", (), keep, finished=terminal, purpose=about)]

    def _stored_before(self) -> list[str]:
        """The results of the phases before the resident ones."""
        return [t.name for level in range(1, self.first_resident + 1) for t in self.needs.kept(level)]

    def _row(self, phases: Sequence[Phase]) -> list[Draft]:
        """One kernel that keeps a segment in registers through all phases."""
        stored = self._stored_before()
        vectors = [t for t in self.needs.vector_outputs if t.name not in stored and "N" in t.axes]
        draft = Draft(
            f"{self.name}_row",
            "row",
            [*(Sweep(phase.sums) for phase in phases), self._last_sweep],
            vectors,
            partial_sums=self.needs.terminal,
            groups=phases[0].axes.blocks("C") or 1,
            purpose=f"each {_reduced(phases[0])} in registers",
        )
        return [draft, *self._finalise_terminal(self.first_resident, [*stored, *(t.name for t in vectors)])]

    def _column(self, phases: Sequence[Phase]) -> list[Draft]:
        """One kernel that keeps a tile of columns in shared memory through all phases."""
        keep = self.needs.kept_at_last(self.first_resident, self._stored_before())
        sweeps = [*(Sweep(phase.sums) for phase in phases), self._last_sweep]
        return [Draft(f"{self.name}_column", "column", sweeps, keep, purpose="each tile of columns in shared memory")]

    def _panel(self, partials: Kernel, finalise: Kernel, apply_: Kernel, *others: Kernel) -> tuple[Kernel, ...]:
        """The kernels of the split schedule with the first three of them as one."""
        parts = (partials, finalise, apply_)
        vectors: dict[str, Tensor] = {}
        made: set[str] = set()
        for part in parts:
            vectors |= {t.name: t for t in part.vectors if t.name not in made}
            made |= {t.name for t in part.writes}
        kernel = Kernel(
            name=f"{self.name}_panel",
            kind="panel",
            vectors=tuple(vectors.values()),
            setup=tuple(dict.fromkeys(node for part in parts for node in part.setup)),
            passes=tuple(pass_ for part in parts for pass_ in part.passes),
            partial_sums=apply_.partial_sums,
            purpose="each panel of columns in the L2",
            parts=parts,
        )
        return kernel, *others

    def _totals(self, known: Known) -> tuple[Kernel, ...]:
        if not self.needs.scalar_outputs:
            return ()
        sweep = Sweep(tuple(self.needs.total_sums))
        name, about = f"{self.name}_total", "sums over all columns"
        return (Draft(name, "total", [sweep], self.needs.scalar_outputs, purpose=about).build(known),)


def _built(drafts: Sequence[Draft], known: Mapping[Node, Tensor]) -> tuple[list[Kernel], Known]:
    """Kernels that run one after the other; what they leave in memory is known to those behind."""
    kernels, known = [], dict(known)
    for draft in drafts:
        kernels.append(draft.build(known))
        known |= {t.node: t for t in draft.vector_stores if t.role == "accumulator"}
    return kernels, known
