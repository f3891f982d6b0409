"""From what a program must compute to kernels: phases of reductions, stages, and the alternatives of each stage."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from fusegen.ir.extent import CHANNEL, ROW
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.kernel import Draft, Sweep
from fusegen.plan.model import Kernel, Phase, Program, Schedule, Tensor


def _unit(phase: Phase) -> str:
    """What is reduced to one value."""
    return "column" if phase.unit == CHANNEL else "row" if phase.unit == ROW else "group"


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
        self.reasons = list(reasons)
        self.given = {tensor.node: tensor for tensor in inputs}
        self.full_outputs = [t for t in outputs if t.extent.is_full]
        # Counts are added to by the kernels that move the running statistics.
        self.scalar_outputs = [t for t in outputs if t.extent.is_scalar and t.role != "count"]
        self.vector_outputs = [t for t in outputs if not t.extent.is_full and not t.extent.is_scalar]
        needed = ancestors([t.node for t in outputs], self.given)
        self.reductions = [n for n in needed if n.is_reduction and n not in self.given and not n.extent.is_scalar]
        self.total_sums = [n for n in needed if n.is_reduction and n.extent.is_scalar]
        self.terminal = tuple(n for n in self.reductions if self._is_terminal(n))
        self.phases = self._phases()

    def program(self) -> Program:
        """The program with all its schedules; the last one fits every size."""
        used = {node for t in self.outputs for node in ancestors([t.node], self.given)}
        inputs = tuple(t for t in self.inputs if t.node in used)
        schedules, known = self._schedules()
        constants = sorted({node.attribute for node in used if node.op == "scalar"})
        groups = next((p.unit.blocks for p in self.phases if p.unit not in (CHANNEL, ROW)), None)
        for node in used:
            if groups is None and node.extent.is_segment and node.extent.blocks != 1:
                groups = node.extent.blocks
        return Program(
            self.name,
            inputs,
            self.outputs,
            tuple(constants),
            tuple(schedules),
            self._totals(known),
            groups,
            tuple(self.reasons),
            tuple(self.phases),
            self.terminal,
            tuple(self.total_sums),
            self._first_resident(),
        )

    # What depends on what

    def _behind(self, node: Node) -> set[Node]:
        """The reductions that `node` depends on, itself excluded."""
        found = ancestors(node.operands, self.given) if node.operands and node not in self.given else []
        return {other for other in found if other.is_reduction and other not in self.given}

    def _is_terminal(self, node: Node) -> bool:
        """A column sum that only feeds per-channel or scalar results: it can be taken in the last pass,
        whatever else is there."""
        if node.extent.rows:
            return False
        needed_by_full = any(node in self._behind(t.node) for t in self.full_outputs)
        return not needed_by_full and not any(node in self._behind(other) for other in self.reductions)

    def _phases(self) -> list[Phase]:
        levels: dict[Node, int] = {}
        for node in self.reductions:
            if node not in self.terminal:
                levels[node] = 1 + max((levels[other] for other in self._behind(node) if other in levels), default=0)
        order = sorted(levels, key=lambda node: (levels[node], not node.extent.rows, str(node.extent), node.index))
        phases = []
        for (_, extent), nodes in groupby(order, key=lambda node: (levels[node], node.extent)):
            phases.append(Phase(extent, tuple(nodes)))
        return phases

    def _first_resident(self) -> int:
        """The first of the last phases of one unit."""
        start = len(self.phases)
        while start and self.phases[start - 1].unit == self.phases[-1].unit:
            start -= 1
        return start

    # Schedules

    def _schedules(self) -> tuple[list[Schedule], dict[Node, Tensor]]:
        start = self._first_resident()
        earlier, resident = self.phases[:start], self.phases[start:]
        if earlier:
            before = " and ".join(dict.fromkeys(f"each {_unit(phase)}" for phase in earlier))
            self.reasons.append(f"{before} is reduced before the last stage, which reduces each {_unit(resident[0])}")
        prefix, known, stored = self._reduce_phases(earlier, dict(self.given), [])
        schedules = []
        if resident:
            axis = "row" if resident[0].unit.rows else "column"
            kernels, _ = (self._row if axis == "row" else self._column)(resident, known, stored)
            schedules.append(Schedule(axis, tuple(prefix + kernels), self._why_resident(resident[0])))
        split, known, stored = self._reduce_phases(resident, known, stored)
        apply_, known = self._apply(known, stored)
        if self._panels_help(split, apply_):
            schedules.append(Schedule("panel", self._panel(*split, *apply_), self._why_panel()))
        kind = "split" if self.phases else "stream"
        schedules.append(Schedule(kind, tuple(prefix + split + apply_), self._why_split(kind)))
        return schedules, known

    def _panels_help(self, split: Sequence[Kernel], apply_: Sequence[Kernel]) -> bool:
        """Whether all there is to reduce before the results are columns, of tensors that the last pass reads again. The
        kernel has no values of rows, and leaves sums but no moments to what follows."""
        if [phase.unit for phase in self.phases] != [CHANNEL]:
            return False
        partials, _, last, *_ = (*split, *apply_)
        again = {t for p in partials.passes for t in p.loads} & {t for p in last.passes for t in p.loads}
        rows = any(t.extent.rows for part in (partials, last) for t in part.vectors)
        return bool(again) and not rows and not any(node.op == "moments" for node in self.terminal)

    def _why_resident(self, phase: Phase) -> str:
        unit = {"row": "row", "group": "group of channels", "column": "tile of columns"}[_unit(phase)]
        place = "shared memory" if phase.unit == CHANNEL else "registers"
        return f"a whole {unit} stays in {place} from its reduction to its use: its kernel reads it once"

    def _why_panel(self) -> str:
        return "a panel of columns stays in the L2 from its reduction to its use: the memory is read once"

    def _why_split(self, kind: str) -> str:
        if kind == "stream" and not self.reductions:
            return "nothing is reduced: one pass over memory"
        if kind == "stream":
            return "no result of a reduction is used element-wise: one pass over memory"
        return "for every size: each reduction phase reads its operands once, the last pass once more"

    def _reduce_phases(
        self, phases: Sequence[Phase], known: dict[Node, Tensor], stored: list[Tensor]
    ) -> tuple[list[Kernel], dict[Node, Tensor], list[Tensor]]:
        """Kernels that bring each phase's results to memory, from where later kernels read them."""
        kernels: list[Kernel] = []
        known, stored = dict(known), list(stored)
        for phase in phases:
            position = self.phases.index(phase) + 1
            done = {node for earlier in self.phases[:position] for node in earlier.sums}
            keep = self._keep(done, known, stored, self.full_outputs)
            number = "" if len(self.phases) == 1 else f"_{position}"
            if phase.unit.rows:
                name, about = f"{self.name}_segments{number}", f"what each {_unit(phase)} is reduced to"
                draft = Draft(name, "segment", known, [Sweep(phase.sums)], keep, groups=phase.unit.blocks, purpose=about)
                kernels.append(draft.build())
            else:
                name, about = f"{self.name}_partials{number}", "column sums, one partial result per block of rows"
                kernels.append(
                    Draft(name, "stream", known, [Sweep(phase.sums)], partial_sums=phase.sums, purpose=about).build()
                )
                name, about = f"{self.name}_finalise{number}", "combines the partial results of each column"
                kernels.append(Draft(name, "finalise", known, (), keep, finished=phase.sums, purpose=about).build())
            stored += keep
            known.update({tensor.node: tensor for tensor in keep if tensor.role == "accumulator"})
        return kernels, known, stored

    def _keep(
        self, done: set[Node], known: dict[Node, Tensor], stored: Sequence[Tensor], full_outputs: Sequence[Tensor] = ()
    ) -> list[Tensor]:
        """What becomes computable with `done` and must reach memory: vector outputs, and values that later passes use.

        full_outputs: those that are still to be computed.
        """
        outputs = [t for t in self.vector_outputs if t not in stored and self._computable(t.node, done, known)]
        keep = {t.name: t for t in outputs}
        resident = {t.node for t in outputs if t.role == "accumulator"}
        later = [t.node for t in full_outputs]
        later += [operand for n in (*self.reductions, *self.total_sums) if n not in done for operand in n.operands]
        later += [t.node for t in self.vector_outputs if t not in stored and t.name not in keep]
        for node in self._frontier(later, done, known):
            if node not in resident:
                keep[f"{node.name}_scratch"] = Tensor(node.name, node, "accumulator", scratch=True)
        return list(keep.values())

    def _computable(self, node: Node, done: set[Node], known: dict[Node, Tensor]) -> bool:
        slice_ = ancestors([node], known)
        return all(n in done or n in known for n in slice_ if n.is_reduction)

    def _frontier(self, targets: Sequence[Node], done: set[Node], known: dict[Node, Tensor]) -> list[Node]:
        """The first vector values, seen from `targets`, that depend on a finished reduction."""
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        stack = list(targets)
        while stack:
            node = stack.pop()
            if node in seen or node in known:
                continue
            seen.add(node)
            reduced = [n for n in ancestors([node], known) if n.is_reduction and n not in known]
            if not node.extent.is_full and reduced and all(n in done for n in reduced) and node.op != "moments":
                found[node] = None
            else:
                stack.extend(node.operands)
        return sorted(found, key=lambda node: node.index)

    def _apply(self, known: dict[Node, Tensor], stored: Sequence[Tensor]) -> tuple[list[Kernel], dict[Node, Tensor]]:
        """The last pass of a split or stream schedule: full results, and the column sums that nothing waits for."""
        suffix = "_apply" if self.phases else ""
        sweep = Sweep(self.terminal, self.full_outputs)
        kernel = Draft(
            f"{self.name}{suffix}",
            "stream",
            known,
            [sweep],
            partial_sums=self.terminal,
            purpose="every result in one pass" if not self.phases else "results, with what is reduced at hand",
        ).build()
        finalise, known = self._finalise_terminal(known, stored)
        return [kernel, *finalise], known

    def _finalise_terminal(
        self, known: dict[Node, Tensor], stored: Sequence[Tensor]
    ) -> tuple[list[Kernel], dict[Node, Tensor]]:
        if not self.terminal:
            return [], known
        keep = self._keep(set(self.reductions), known, stored)
        name = f"{self.name}_column_sums"
        kernel = Draft(
            name, "finalise", known, (), keep, finished=self.terminal, purpose="column sums from partial results"
        )
        return [kernel.build()], known | {t.node: t for t in keep if t.role == "accumulator"}

    def _row(
        self, phases: Sequence[Phase], known: dict[Node, Tensor], stored: Sequence[Tensor]
    ) -> tuple[list[Kernel], dict[Node, Tensor]]:
        """One kernel that keeps a segment in registers through all phases."""
        vectors = [t for t in self.vector_outputs if t not in stored and t.extent.rows]
        sweeps = [Sweep(phase.sums) for phase in phases] + [Sweep(self.terminal, self.full_outputs)]
        kernel = Draft(
            f"{self.name}_row",
            "row",
            known,
            sweeps,
            vectors,
            partial_sums=self.terminal,
            groups=phases[0].unit.blocks,
            purpose=f"each {_unit(phases[0])} in registers",
        ).build()
        finalise, known = self._finalise_terminal(known, [*stored, *vectors])
        return [kernel, *finalise], known

    def _column(
        self, phases: Sequence[Phase], known: dict[Node, Tensor], stored: Sequence[Tensor]
    ) -> tuple[list[Kernel], dict[Node, Tensor]]:
        """One kernel that keeps a tile of columns in shared memory through all phases."""
        keep = self._keep(set(self.reductions), known, stored)
        sweeps = [Sweep(phase.sums) for phase in phases] + [Sweep(self.terminal, self.full_outputs)]
        kernel = Draft(
            f"{self.name}_column", "column", known, sweeps, keep, purpose="each tile of columns in shared memory"
        ).build()
        return [kernel], known | {t.node: t for t in keep if t.role == "accumulator"}

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

    def _totals(self, known: dict[Node, Tensor]) -> tuple[Kernel, ...]:
        if not self.scalar_outputs:
            return ()
        draft = Draft(
            f"{self.name}_total",
            "total",
            known,
            [Sweep(tuple(self.total_sums))],
            self.scalar_outputs,
            purpose="sums over all columns",
        )
        return (draft.build(),)
