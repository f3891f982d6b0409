"""Typed contexts of the kernel templates: every line of code that depends on the chain is made here."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusegen.ir.extent import CHANNEL, ROW, SCALAR, Extent
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.model import Kernel, Pass, Tensor
from fusegen.render.expressions import Expressions
from fusegen.render.types import pointer, type_parameter


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: its declaration, and the expression a launch passes."""

    declaration: str
    argument: str


@dataclass(frozen=True)
class Load:
    """A tensor that is read.

    condition: extra condition for tensors whose pointer may be null. index: where a segment's value stands;
    `{row}` is the row.
    """

    name: str
    pointer: str
    type: str
    condition: str = ""
    index: str = ""


@dataclass(frozen=True)
class Store:
    """A tensor that is written. optional: its pointer may be null."""

    name: str
    pointer: str
    type: str
    optional: bool
    value: str
    narrowed: str


@dataclass(frozen=True)
class Sum:
    """A sum that a pass takes. moments: mean and squared distances instead. slot: its place among the partial
    results."""

    name: str
    value: str
    moments: bool
    slot: int


@dataclass(frozen=True)
class Sweep:
    """One loop over elements.

    fresh: the first sweep loads from memory, later ones reuse what is on chip. keep_values: operands of moments that
    are kept in registers for later sweeps. deviations: for the second sweep over the moments' operands, those moments.
    segments: values of other segments than the kernel's own.
    """

    loads: list[Load]
    columns: list[Load]
    segments: list[Load]
    lines: list[str]
    sums: list[Sum]
    stores: list[Store]
    fresh: bool = False
    keep_values: list[tuple[str, str]] = field(default_factory=list)
    deviations: list[Sum] = field(default_factory=list)


@dataclass(frozen=True)
class Stage:
    """A sweep and what follows once its sums are known."""

    sweep: Sweep
    deviation: Sweep | None
    arrays: list[str]
    results: list[str]
    stores: list[Store]


@dataclass(frozen=True)
class KernelContext:
    name: str
    kind: str
    comment: list[str]
    parameters: list[Parameter]
    scalars: list[str]
    scalar_loads: list[Load]
    column_loads: list[Load]
    segment_loads: list[Load]
    column_arrays: list[str]
    column_lines: list[str]
    segment_lines: list[str]
    stages: list[Stage]
    partial_sums: list[Sum]
    slots: int
    tiles: list[Load]
    uses_groups: bool
    inner_groups: bool

    @property
    def has_moments(self) -> bool:
        return any(stage.deviation for stage in self.stages)

    def is_partial(self, sum_: Sum) -> bool:
        """Whether the sum leaves the kernel as one partial result per block."""
        return any(sum_.name == partial.name for partial in self.partial_sums)


class KernelRenderer:
    """Turns one planned kernel into its context."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.by_segment = kernel.kind in ("row", "segment")
        self.expressions = Expressions(self._reference, self._count)
        self.column_leaves = {t.node for t in kernel.vectors if t.node.extent == CHANNEL}
        self.held: list[Node] = []
        self.element_vectors: set[Node] = set()

    # How values are named

    def _reference(self, node: Node) -> str:
        if node.extent == CHANNEL and self.kernel.kind not in ("finalise", "total"):
            if node in self.element_vectors:
                return node.name
            return f"{node.name}[kept][v]" if self.kernel.kind == "row" else f"{node.name}[v]"
        if node.op == "moments" and self.kernel.kind == "column":
            return f"{node.name}[v]"
        return node.name

    def _load(self, tensor: Tensor) -> Load:
        condition = f"{pointer(tensor)} != nullptr" if tensor.optional else ""
        index = self._segment_index(tensor) if tensor.extent.is_segment else ""
        return Load(tensor.node.name, pointer(tensor), type_parameter(tensor.role), condition, index)

    def _segment_index(self, tensor: Tensor) -> str:
        row = "at" if self.kernel.kind == "stream" else "row"
        if tensor.extent == ROW:
            return row
        return f"{row} * inner_groups + inner" if self._is_inner(tensor.node) else f"{row} * groups + segment"

    def _is_inner(self, node: Node) -> bool:
        """A value of each group of channels, in a kernel whose own segments are whole rows."""
        return self.by_segment and self.kernel.groups == 1 and _is_grouped(node)

    def _count(self, over: Extent) -> str:
        if over == CHANNEL:
            return "rows"
        if over == ROW:
            return "channels"
        return f"channels / {'inner_groups' if self.by_segment and self.kernel.groups == 1 else 'groups'}"

    def _store(self, tensor: Tensor) -> Store:
        value, type_ = self.expressions.operand(tensor.node), type_parameter(tensor.role)
        narrowed = value if tensor.role == "accumulator" else f"narrow<{type_}>({value})"
        return Store(tensor.name, pointer(tensor), type_, tensor.optional, value, narrowed)

    # The parts of a kernel

    def context(self) -> KernelContext:
        kernel = self.kernel
        scalars = [node for node in kernel.setup if node.extent == SCALAR]
        columns = [node for node in kernel.setup if node.extent == CHANNEL]
        inner = [node for node in kernel.setup if self._is_inner(node)]
        segments = [node for node in kernel.setup if node.extent.is_segment and node not in inner]
        if self.by_segment:
            self.element_vectors = set(columns)
        scalar_lines = self.expressions.statements(scalars, self._uses_outside(scalars), _constant)
        column_arrays: list[str] = []
        column_lines: list[str] = []
        if not self.by_segment:
            pinned = self._pinned(columns)
            column_arrays = [node.name for node in columns if node in pinned]
            column_lines = self.expressions.statements(
                columns, self._uses_outside(columns), self._column(columns, pinned), pinned
            )
        segment_lines = self.expressions.statements(segments, self._uses_outside(segments), _constant)
        self._vectors_per_element = [*columns, *inner] if self.by_segment else []
        slots: list[Sum] = []
        for node in kernel.partial_sums:
            slots.append(Sum(node.name, "", node.op == "moments", self._slot_after(slots)))
        stages = [self._stage(index, pass_, slots) for index, pass_ in enumerate(kernel.passes)]
        vectors = kernel.vectors
        return KernelContext(
            name=kernel.name,
            kind=kernel.kind,
            comment=self._comment(),
            parameters=self._parameters(),
            scalars=scalar_lines,
            scalar_loads=[self._load(t) for t in vectors if t.extent == SCALAR],
            column_loads=[self._load(t) for t in vectors if t.extent == CHANNEL],
            segment_loads=[self._load(t) for t in vectors if t.extent.is_segment and not self._is_inner(t.node)],
            column_arrays=column_arrays,
            column_lines=column_lines,
            segment_lines=segment_lines,
            stages=stages,
            partial_sums=slots,
            slots=self._slot_after(slots),
            tiles=[self._load(t) for t in _loads(kernel)],
            uses_groups=self._uses_groups(),
            inner_groups=self._uses_inner_groups(),
        )

    @staticmethod
    def _slot_after(slots: list[Sum]) -> int:
        return sum(2 if each.moments else 1 for each in slots)

    def _uses_outside(self, nodes: list[Node]) -> list[Node]:
        """Each use of these nodes elsewhere in the kernel."""
        inside = set(nodes)
        elsewhere = [n for n in self._all_nodes() if n not in inside]
        used = [operand for node in elsewhere for operand in node.operands if operand in inside]
        used += [t.node for p in self.kernel.passes for t in (*p.stores, *p.vector_stores) if t.node in inside]
        return used

    def _all_nodes(self) -> list[Node]:
        kernel = self.kernel
        every = [*kernel.setup, *(n for p in kernel.passes for n in (*p.values, *p.sums, *p.results))]
        return list(dict.fromkeys(every))

    def _pinned(self, nodes: list[Node]) -> set[Node]:
        """Vector values that outlive the loop that computes them, so they need an array."""
        outside = set(self._uses_outside(nodes))
        return {node for node in nodes if node in outside}

    def _column(self, nodes: list[Node], pinned: set[Node]):
        """How a per-column value is declared in its loop over `v`: in its array, or as a local constant."""
        self.element_vectors |= set(nodes) - pinned

        def declare(node: Node, text: str) -> str:
            return f"{node.name}[v] = {text};" if node in pinned else f"const Acc {node.name} = {text};"

        return declare

    def _stage(self, index: int, pass_: Pass, slots: list[Sum]) -> Stage:
        resident = self.kernel.kind in ("row", "column", "segment")
        moments = [node for node in pass_.sums if node.op == "moments"] if resident else []
        keep = [node.operands[0] for node in moments if node.operands[0] in pass_.values and self.kernel.kind == "row"]
        sweep = self._sweep(pass_.loads, pass_.values, pass_.sums, pass_.stores, slots, fresh=index == 0, keep=keep)
        self.held += keep
        deviation = None
        if moments:
            operands = [node.operands[0] for node in moments]
            values = self._slice(operands)
            deviation = self._sweep(_loads(self.kernel), values, moments, (), slots, fresh=False, deviations=True)
        results = list(pass_.results)
        if self.kernel.kind == "column":
            pinned = self._pinned(results) | {t.node for t in pass_.vector_stores}
            local = self._column(results, pinned)
            lines = self.expressions.statements(results, self._uses_outside(results), local, pinned)
            arrays = [node.name for node in results if node in pinned]
        else:
            lines = self.expressions.statements(results, self._uses_outside(results), _constant)
            arrays = []
        stores = [self._store(t) for t in pass_.vector_stores]
        return Stage(sweep, deviation, arrays, lines, stores)

    def _slice(self, targets: list[Node]) -> list[Node]:
        """The full-size values behind `targets` that must be computed again, given what is held."""
        stop = set(self.held) | {t.node for t in _loads(self.kernel)}
        return [n for n in ancestors(targets, stop) if n.extent.is_full and n not in stop]

    def _sweep(self, loads, values, sums, stores, slots, fresh, keep=(), deviations=False) -> Sweep:
        if self.held:
            targets = [t.node for t in stores] + [operand for node in sums for operand in node.operands]
            values = self._slice(targets)
        values = [*(n for n in self._vectors_per_element if self._needed_by(n, values)), *values]
        used = {operand for node in (*values, *sums) for operand in node.operands} | {t.node for t in stores}
        # Sums that a sweep does not take itself are results of moments' second sweep.
        sinks = [operand for node in sums for operand in node.operands]
        sinks += [t.node for t in stores]
        sinks += list(keep)
        lines = [f"const Acc {n.name} = {n.name}_held[i][v];" for n in self.held if n in used]
        lines += self.expressions.statements(values, sinks, _constant)
        taken = []
        for node in sums:
            slot = next((each.slot for each in slots if each.name == node.name), 0)
            taken.append(Sum(node.name, self.expressions.operand(node.operands[0]), node.op == "moments", slot))
        columns = [self._load(t) for t in self.kernel.vectors if t.node in used and t.node in self.column_leaves]
        return Sweep(
            loads=[self._load(t) for t in loads if fresh or t.node in used],
            columns=columns,
            segments=[self._load(t) for t in self.kernel.vectors if t.node in used and self._is_inner(t.node)],
            lines=lines,
            sums=[] if deviations else taken,
            stores=[self._store(t) for t in stores],
            fresh=fresh,
            keep_values=[(n.name, self.expressions.operand(n)) for n in keep],
            deviations=taken if deviations else [],
        )

    def _needed_by(self, node: Node, values) -> bool:
        return node in ancestors(values)

    def _uses_groups(self) -> bool:
        return self.by_segment or any(_is_grouped(t.node) for t in (*self.kernel.reads, *self.kernel.writes))

    def _uses_inner_groups(self) -> bool:
        counts = [n.attribute for node in self._all_nodes() for n in node.operands if n.op == "count"]
        grouped = any(over not in (ROW, CHANNEL) for over in counts)
        own = self.by_segment and self.kernel.groups == 1
        return own and (grouped or any(_is_grouped(t.node) for t in self.kernel.reads))

    def _comment(self) -> list[str]:
        return [f"{self.kernel.purpose[0].upper()}{self.kernel.purpose[1:]}."]

    def _parameters(self) -> list[Parameter]:
        kernel = self.kernel
        written = {t.name for t in kernel.writes}
        found: dict[str, Parameter] = {}
        for tensor in kernel.reads:
            if tensor.name not in written:
                declaration = f"const {type_parameter(tensor.role)}* __restrict__ {pointer(tensor)}"
                found[tensor.name] = Parameter(declaration, pointer(tensor))
        for tensor in kernel.writes:
            restrict = "" if tensor.name in {t.name for t in kernel.reads} else "__restrict__ "
            found[tensor.name] = Parameter(
                f"{type_parameter(tensor.role)}* {restrict}{pointer(tensor)}", pointer(tensor)
            )
        parameters = list(found.values())
        if kernel.partial_sums:
            const = "const " if kernel.kind == "finalise" else ""
            parameters.append(Parameter(f"{const}Accumulate<T>* __restrict__ partials", "partials"))
        parameters += [Parameter(f"double {node.name}", f"a.{node.attribute}") for node in self._constants()]
        return parameters

    def _constants(self) -> list[Node]:
        used = {operand for node in self._all_nodes() for operand in node.operands if operand.op == "scalar"}
        return sorted(used, key=lambda node: node.name)


def _is_grouped(node: Node) -> bool:
    return node.extent.is_segment and node.extent != ROW


def _constant(node: Node, text: str) -> str:
    return f"const Acc {node.name} = {text};"


def _loads(kernel: Kernel) -> list[Tensor]:
    return list({t.name: t for p in kernel.passes for t in p.loads}.values())
