"""The kernels of a program's schedules: what each computes, and what it leaves to those behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fusegen.plan.programs.model import Kernel, Phase, Tensor
from fusegen.plan.programs.phases import PhaseAnalysis
from fusegen.plan.programs.units import Unit, unit_of
from fusegen.plan.schedules.kernel import KernelSpec, Known, PassSpec

_REDUCED = {
    Unit.CHANNEL: "column",
    Unit.SAMPLE: "channel of a sample",
    Unit.SAMPLE_GROUP: "group of channels of a sample",
}


def reduced(phase: Phase) -> str:
    """The name of what a phase reduces to one value, such as "row" or "group"."""
    return _REDUCED.get(phase.unit, phase.unit.value)


@dataclass(frozen=True)
class ScheduleKernels:
    """Makes the kernels of the program `name` from the reductions that it needs."""

    name: str
    analysis: PhaseAnalysis

    @cached_property
    def first_resident(self) -> int:
        """The first of the last phases of one unit. None of rows where moments of columns come after them: kernels that
        keep rows leave sums to what follows, but no moments. Nor of columns where there are sums of samples, of
        whose rows a tile of columns has all. Values of samples, and windows, are known to passes over memory alone."""
        phases = self.analysis.phases
        start = len(phases)
        if self.analysis.from_memory:
            return start
        if start and phases[-1].unit is Unit.CHANNEL and self.sums_samples:
            return start
        while start and phases[start - 1].unit == phases[-1].unit:
            start -= 1
        moments = any(node.op == "moments" for node in self.analysis.terminal)
        return len(phases) if moments and phases and phases[-1].unit is not Unit.CHANNEL else start

    @property
    def resident(self) -> Sequence[Phase]:
        """The phases between which a persistent kernel has elements."""
        return self.analysis.phases[self.first_resident :]

    def first_phases(self) -> list[KernelSpec]:
        """The kernels of the phases before these."""
        return self._reduce_phases(0, self.first_resident)

    def last_phases(self) -> list[KernelSpec]:
        """Kernels of the others that bring their results to memory, too."""
        return self._reduce_phases(self.first_resident, len(self.analysis.phases))

    def _reduce_phases(self, begin: int, end: int) -> list[KernelSpec]:
        """Kernels that bring the results of some phases to memory, from where later kernels read them."""
        found: list[KernelSpec] = []
        for position, phase in enumerate(self.analysis.phases[begin:end], begin + 1):
            stores = self.analysis.stored(position)
            number = "" if len(self.analysis.phases) == 1 else f"_{position}"
            if not phase.unit.leaves_partials:
                name, about = f"{self.name}_row_reduction{number}", f"what each {reduced(phase)} is reduced to"
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
                kind = "sample_reduction" if phase.unit.of_samples else "final_reduction"
                name, about = f"{self.name}_{kind}{number}", f"combines the partial results of each {reduced(phase)}"
                found.append(KernelSpec(name, kind, (), stores, finished=phase.sums, purpose=about))
        return found

    @property
    def has_last(self) -> bool:
        """Whether the pass behind the phases has anything to do."""
        return bool(self.analysis.full_outputs or self.analysis.terminal)

    @property
    def _last_pass(self) -> PassSpec:
        """Full results, and the column sums that nothing waits for."""
        return PassSpec(self.analysis.terminal, self.analysis.full_outputs)

    def apply(self) -> list[KernelSpec]:
        """The last pass of a two-pass or pointwise schedule; none where all results are of rows."""
        if not self.has_last:
            return []
        suffix = "_apply" if self.analysis.phases else ""
        about = "every result in one pass" if not self.analysis.phases else "results, with what is reduced at hand"
        terminal = self.analysis.terminal
        spec = KernelSpec(f"{self.name}{suffix}", "pointwise", [self._last_pass], partial_sums=terminal, purpose=about)
        stored = [t.name for level in range(1, self.analysis.last) for t in self.analysis.stored(level)]
        return [spec, *self._reduce_terminal(len(self.analysis.phases), stored)]

    def _reduce_terminal(self, known: int, stored: Sequence[str]) -> list[KernelSpec]:
        """known: the phases whose results are in memory."""
        terminal = self.analysis.terminal
        if not terminal:
            return []
        stores = self.analysis.stored_at_last(known, stored)
        found = []
        if of_samples := [tensor for tensor in stores if tensor.unit.of_samples]:
            name, about = f"{self.name}_sample_sums", "sums of samples from partial results"
            sums = [node for node in terminal if unit_of(node.axes).of_samples]
            found.append(KernelSpec(name, "sample_reduction", (), of_samples, finished=sums, purpose=about))
        if others := [tensor for tensor in stores if not tensor.unit.of_samples]:
            name, about = f"{self.name}_column_sums", "column sums from partial results"
            sums = [node for node in terminal if not unit_of(node.axes).of_samples]
            found.append(KernelSpec(name, "final_reduction", (), others, finished=sums, purpose=about))
        return found

    @property
    def sums_samples(self) -> bool:
        """Whether the last pass takes sums of samples."""
        return any(unit_of(node.axes).of_samples for node in self.analysis.terminal)

    def _stored_before(self) -> list[str]:
        """The results of the phases before the resident ones."""
        return [t.name for level in range(1, self.first_resident + 1) for t in self.analysis.stored(level)]

    def row(self, phases: Sequence[Phase]) -> list[KernelSpec]:
        """One kernel that keeps a row or a group in registers, or a long row in shared memory, through all phases."""
        stored = self._stored_before()
        vectors = [t for t in self.analysis.vector_outputs if t.name not in stored and "N" in t.axes]
        or_shared = " or shared memory" if phases[0].unit is Unit.ROW else ""
        spec = KernelSpec(
            f"{self.name}_row",
            "row",
            [*(PassSpec(phase.sums) for phase in phases), self._last_pass],
            vectors,
            partial_sums=self.analysis.terminal,
            groups=phases[0].axes.blocks("C") or 1,
            purpose=f"each {reduced(phases[0])} in registers{or_shared}",
        )
        return [spec, *self._reduce_terminal(self.first_resident, [*stored, *(t.name for t in vectors)])]

    def column(self, phases: Sequence[Phase]) -> list[KernelSpec]:
        """One kernel that keeps a tile of columns in shared memory through all phases."""
        stores = self.analysis.stored_at_last(self.first_resident, self._stored_before())
        passes = [*(PassSpec(phase.sums) for phase in phases), self._last_pass]
        return [
            KernelSpec(f"{self.name}_column", "column", passes, stores, purpose="each tile of columns in shared memory")
        ]

    def l2(self, partials: Kernel, final: Kernel, apply_: Kernel, *others: Kernel) -> tuple[Kernel, ...]:
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

    def scalar_reductions(self, known: Known) -> tuple[Kernel, ...]:
        if not self.analysis.scalar_outputs:
            return ()
        pass_ = PassSpec(tuple(self.analysis.scalar_sums))
        name, about = f"{self.name}_scalar_reduction", "sums over all columns"
        return (
            KernelSpec(name, "scalar_reduction", [pass_], self.analysis.scalar_outputs, purpose=about).build(known),
        )
