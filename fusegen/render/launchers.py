"""Makes the contexts of the launchers: the host code that picks a schedule and starts its kernels."""

from __future__ import annotations

from collections.abc import Mapping

from fusegen.ir.extent import CHANNEL, ROW
from fusegen.plan.model import Kernel, Mode, Program, Schedule, Tensor
from fusegen.plan.modes import VERIFICATION_DTYPE
from fusegen.render.contexts import KernelContext
from fusegen.render.environment import wrap
from fusegen.render.launcher_contexts import ModeContext, Pointer, ProgramContext, ScheduleContext, ScratchContext
from fusegen.render.launchers_header import argument_tensors, struct
from fusegen.render.layout import WIDTH
from fusegen.render.spelling import spell
from fusegen.render.types import CPP, element_type, pointer, type_roles
from fusegen.render.work import STREAMS, column_work, row_staged, row_work, stream_work

_TIED = "\N{NO-BREAK SPACE}"
_ONE = "int64_t(1)"  # segment of a row: the row itself

_COMMENT = {
    "row": "Each segment stays in registers.",
    "column": "Each tile of columns stays in shared memory.",
    "panel": "Each panel of columns stays in the L2.",
    "split": "Any size: statistics first, then one more pass.",
    "stream": "One pass over memory.",
}
# Template arguments of kernels that have others than most.
_VECTOR = {"finalise": "", "total": "", "column": ", kColumns, kPacked", "panel": ", kVec"}


def mode_contexts(modes: tuple[Mode, ...]) -> list[ModeContext]:
    found = []
    for mode in modes:
        types = [CPP[mode.roles[role]] for role in type_roles(mode.roles)]
        verification = mode.roles["activation"] == VERIFICATION_DTYPE
        found.append(ModeContext(mode.index, mode.name, ", ".join(types), verification))
    return found


def program_pointers(program: Program) -> list[Pointer]:
    return [
        Pointer(pointer(tensor), spell(tensor.name, "arg"), ("" if written else "const ") + element_type(tensor))
        for tensor, written in argument_tensors(program)
    ]


class LauncherRenderer:
    """Makes the launcher's context of one program.

    contexts: of its kernels, by name. types: the launcher's template parameters that are types. used: those of each
    kernel.
    """

    def __init__(
        self,
        program: Program,
        contexts: Mapping[str, KernelContext],
        types: list[str],
        used: Mapping[str, list[str]],
        symbol: str,
    ) -> None:
        self.program = program
        self.contexts = contexts
        self.types = types
        self.used = used
        self.symbol = symbol
        self.groups = "groups" if program.groups is not None else _ONE

    def context(self) -> ProgramContext:
        program = self.program
        tensors = list({t.name: t for t in (*program.inputs, *program.outputs)}.values())
        elements = [t for t in tensors if t.extent.is_full]
        return ProgramContext(
            name=program.name,
            symbol=self.symbol,
            struct=struct(program),
            pointers=program_pointers(program),
            groups=program.groups is not None,
            schedules=[self._schedule(schedule) for schedule in program.schedules],
            elements=[_argument(t) for t in elements],
            vectors=[_argument(t) for t in tensors if not t.extent.is_scalar and t not in elements],
            arrays=max(context.arrays for context in self.contexts.values()),
            types=", ".join(self.types),
        )

    def _schedule(self, schedule: Schedule) -> ScheduleContext:
        kernels = [*schedule.kernels, *self.program.totals]
        scratch = {t.name: t for kernel in kernels for t in kernel.writes if t.scratch}
        launches = [self._launch(kernel, kernels) for kernel in kernels]
        slots = self._partial_slots(kernels)
        row = next((kernel for kernel in kernels if kernel.kind == "row"), None)
        column = next((kernel for kernel in kernels if kernel.kind == "column"), None)
        return ScheduleContext(
            kind=schedule.kind,
            comment=[_COMMENT[schedule.kind]],
            groups=self._groups(row) if row else self.groups,
            row_work=row_work(self.contexts, self.program, schedule, row) if row else "",
            row_staged=row_staged(self.contexts, row) if row else "",
            row_sums=bool(row and row.partial_sums),
            column_work=column_work(self.contexts, self.program, schedule, column) if column else "",
            streams=[(name, work) for name, work in STREAMS.items() if name in map(self._stream, kernels)],
            needs_finalise=any(kernel.kind == "finalise" for kernel in kernels),
            partial_blocks=_largest(list(slots)),
            partials=_largest([f"int64_t({blocks}) * {count} * channels" for blocks, count in slots.items()]),
            scratch=[ScratchContext(pointer(t), self._count(t)) for t in scratch.values()],
            launches=launches,
        )

    def _count(self, tensor: Tensor) -> str:
        if tensor.extent == CHANNEL:
            return "channels"
        return "rows" if tensor.extent == ROW else "rows * groups"

    def _groups(self, kernel: Kernel) -> str:
        """The number of segments in a row, as this kernel cuts it."""
        return _ONE if kernel.groups == 1 else self.groups

    def _segments(self, kernel: Kernel) -> list[str]:
        """How many segments of a row a kernel has, and how long they are; of those within its own, too."""
        context = self.contexts[kernel.name]
        groups = self._groups(kernel) if kernel.kind in ("row", "segment") else self.groups
        length = "length" if kernel.kind == "row" else _length(groups)
        both = [groups, length] if context.uses_groups else []
        return [*both, self.groups, _length(self.groups)] if context.inner_groups else both

    def _stream(self, kernel: Kernel) -> str | None:
        """The launch shape of a stream kernel; None for other kinds."""
        return stream_work(self.contexts[kernel.name], kernel) if kernel.kind == "stream" else None

    def _blocks(self, kernel: Kernel) -> str:
        """How many partial results a kernel leaves of each sum of a column."""
        name = self._stream(kernel)
        if kernel.kind == "panel":
            return "panel.slices"
        return f"{name}.grid.y * {name}.period" if name else "row.grid.y"

    def _partial_slots(self, kernels: list[Kernel]) -> dict[str, int]:
        """For each number of blocks that leave partial results, the most that one of them leaves of a column. Those of
        one kernel are gone when the next one writes its own."""
        slots: dict[str, int] = {}
        for kernel in kernels:
            if not _leaves_partials(kernel):
                continue
            blocks = self._blocks(kernel)
            slots[blocks] = max(slots.get(blocks, 0), self.contexts[kernel.name].slots)
        return slots

    def _row_instance(self, kernel: Kernel) -> list[str]:
        """The lines that choose the instance of a row kernel and, where no result depends on it, how many blocks it
        has."""

        def instance(*arguments: str) -> str:
            return f"kernel = {kernel.name}<{', '.join([*self.used[kernel.name], *arguments])}>;"

        context = self.contexts[kernel.name]
        vector = "kRow" if kernel.partial_sums else "kVec"
        lines = [f"auto* {instance(vector, 'kPacked', '1')}"]
        lines += _wrapped(f"if (row.items == 2) {instance(vector, 'kPacked', '2')}")
        if context.large:
            where = "sizeof(T) == 2 || kMostCluster == 1" if context.clusters else ""
            lines += _only(where, f"if (row.large) {instance(vector, 'kPacked', '2', 'true')}")
        if context.clusters:
            others = ["false"] if context.large else []
            lines += _only(
                "kMostCluster > 1", f"if (row.cluster > 1) {instance(vector, 'kPacked', '2', *others, 'true')}"
            )
        exchanged = context.row_exchange(vector)
        columns = f"row.items * {vector}"
        if kernel.partial_sums:
            lines += _wrapped(f"if (wide) {instance('kWide', 'kPacked', '1')}")
            lines += _wrapped(f"const int exchanged = wide ? {context.row_exchange('kWide')} : {exchanged};")
            exchanged, columns = "exchanged", "row.items * (wide ? kWide : kRow)"
        bytes_ = f"{exchanged} * sizeof(Acc)"
        if context.staged_arrays:
            staged = context.staged("row.large", columns)
            lines += _wrapped(f"const size_t staged = {staged} ? row.block.x * kStagedBytes : 0;")
            bytes_ += " + staged"
        lines += _wrapped(f"const size_t shared_bytes = {bytes_};")
        if kernel.partial_sums:
            return lines
        sizes = f"rows, {self._groups(kernel)}, length"
        return [
            *lines,
            "const int resident = resident_blocks(kernel, row.block, shared_bytes, row.resident);",
            *_wrapped(f"set_row_blocks(row, shapes, kWork, {sizes}, resident, kMultiprocessors);"),
        ]

    def _launch(self, kernel: Kernel, kernels: list[Kernel]) -> list[str]:
        """The lines that launch one of a schedule's kernels."""
        context = self.contexts[kernel.name]
        arguments = [p.argument for p in context.parameters]
        types = ", ".join(self.used[kernel.name])
        name = f"{kernel.name}<{types}{_VECTOR.get(kernel.kind, ', kVec, kPacked')}>"
        lines: list[str] = []
        sizes = ["rows", "channels"]
        match kernel.kind:
            case "stream":
                shape = self._stream(kernel)
                grid = [f"{shape}.grid", f"{shape}.block"]
                shared = "kStreamThreads * 2 * kVec * sizeof(Acc)" if kernel.partial_sums else "0"
                sizes += self._segments(kernel)
                sizes += [f"{shape}.lines", f"{shape}.lines_per_block", f"{shape}.period", "whole"]
            case "finalise":
                earlier = kernels[: kernels.index(kernel)]
                source = next(each for each in reversed(earlier) if _leaves_partials(each))
                shape = self._stream(source)
                grid = ["finalise.grid", "finalise.block"]
                shared = "kStreamThreads * 2 * sizeof(Acc)"
                sizes += [f"int64_t({self._blocks(source)})"]
                if context.has_partial_moments:
                    sizes += [f"{shape}.lines_per_block", f"{shape}.period", f"rows / {shape}.period"]
            case "segment":
                segments = self._segments(kernel)
                asked = ["shapes", "rows", *segments[:2], "kSegmentTurn * kVec", "kMostCluster", "kMultiprocessors"]
                grid = [f"segment_grid({', '.join(asked)})", "dim3(kSegmentThreads)"]
                shared = "kSegmentExchange * sizeof(Acc)"
                sizes += [*segments, "whole"]
            case "row":
                grid = ["row.grid", "row.block"]
                shared = "shared_bytes"
                sizes += self._segments(kernel)
                sizes += ["row.lanes", "row.across", "row.height", *(["row.period"] if context.partial_sums else [])]
                groups = self._groups(kernel)
                steps = ["row.step", "row.step" if groups == _ONE else f"row.step * {groups}", "row.step * channels"]
                sizes += [*steps, "size", "whole"]
                lines += self._row_instance(kernel)
                name = "kernel"
            case "column":
                grid = ["tile.grid", "tile.block"]
                shared = "tile.shared_bytes"
                sizes += self._segments(kernel)
                sizes += ["tile.rows_per_block"]
            case "panel":
                grid = ["panel.grid", "panel.block"]
                shared = f"kPanelWarps * ({context.panel_values}) * sizeof(Acc)"
                sizes += ["panel.panels", "panel.slices", "panel.lag"]
                lines = [
                    "error = clear_counters(counters, panel.panels, stream);",
                    "if (error != cudaSuccess) return error;",
                ]
            case "total":
                grid, shared = ["dim3(1)", "dim3(kTotalThreads)"], "32 * sizeof(Acc)"
        words = [name, *grid, shared, "stream", *arguments, *sizes]
        call = ", ".join(word.replace(" ", _TIED) for word in words)  # lines end behind an argument
        launch = "launch_in_order" if kernel.kind == "panel" else "launch"
        if kernel is kernels[-1]:
            return [*lines, *_wrapped(f"return {launch}({call});")]
        return [*lines, *_wrapped(f"error = {launch}({call});"), "if (error != cudaSuccess) return error;"]


def _argument(tensor: Tensor) -> str:
    return f"arguments->{spell(tensor.name, 'arg')}"


def _length(groups: str) -> str:
    """How many channels each of so many segments of a row has."""
    return "channels" if groups == _ONE else f"channels / {groups}"


def _wrapped(statement: str) -> list[str]:
    return wrap(statement, WIDTH - 4, 4).replace(_TIED, " ").splitlines()


def _only(where: str, statement: str) -> list[str]:
    """The lines of a statement that is compiled under a condition, if there is one."""
    return [f"if constexpr ({where}) {{", *_wrapped(f"  {statement}"), "}"] if where else _wrapped(statement)


def _leaves_partials(kernel: Kernel) -> bool:
    """Whether it leaves sums of columns to a later kernel, or to a later part of its own. One that finalises them has
    them among its own, too."""
    return bool(kernel.parts) or (kernel.kind in ("stream", "row") and bool(kernel.partial_sums))


def _largest(terms: list[str]) -> str:
    """The largest of some int64_t, as C++."""
    return terms[0] if len(terms) == 1 else f"std::max<int64_t>({', '.join(terms)})" if terms else ""
