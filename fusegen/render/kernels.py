"""Makes the contexts of the kernel templates: every line of code that depends on the chain is made here."""

from __future__ import annotations

from dataclasses import replace

from fusegen.ir.extent import CHANNEL, ROW, SCALAR, Extent
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.model import Kernel, Pass, Tensor
from fusegen.render.contexts import Count, KernelContext, Load, Stage, Store, Sum, Sweep
from fusegen.render.expressions import Expressions
from fusegen.render.held import Held
from fusegen.render.parameters import kernel_parameters
from fusegen.render.spelling import spell, value
from fusegen.render.types import element_type, pointer

_MOST_CONSTANTS = 3  # of a column that fit registers beside sums of it, for eight columns
_MOST_STAGED = 6  # constants and sums of a column that fit shared memory, for eight columns of 1024 threads


class KernelRenderer:
    """Turns one planned kernel into its context."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.by_segment = kernel.kind in ("row", "segment")
        self.expressions = Expressions(self._reference, self._count)
        self.column_leaves = {t.node for t in kernel.vectors if t.node.extent == CHANNEL}
        self.large, self.many_constants = self._large(), self._many_constants()
        self.held = Held(kernel)
        self.element_vectors: set[Node] = set()

    # How values are named

    def _reference(self, node: Node) -> str:
        if node.extent == CHANNEL and self.kernel.kind not in ("finalise", "total"):
            if node in self.element_vectors:
                return value(node.name)
            staged = self.large or self.many_constants
            place = "" if self.kernel.kind != "row" else "[kept]" if staged else "[i]"
            return f"{value(node.name)}{place}[v]"
        if node.op == "moments" and self.kernel.kind == "column":
            return f"{value(node.name)}[v]"
        return value(node.name)

    def _many_constants(self) -> bool:
        """Whether a row kernel has more constants of a column than fit registers beside sums of it."""
        sums = bool(self.kernel.partial_sums)
        return self.kernel.kind == "row" and sums and len(self.column_leaves) > _MOST_CONSTANTS

    def _large(self) -> bool:
        """Whether a row kernel has an instance for large blocks: all but those with too much to keep of a column."""
        sums = self.kernel.partial_sums
        return self.kernel.kind == "row" and (not sums or len(self.column_leaves) + len(sums) <= _MOST_STAGED)

    def _load(self, tensor: Tensor) -> Load:
        conditions = [f"{self._momentum(tensor)} < 0"] if tensor.role == "count" else []
        conditions += [f"{pointer(tensor)} != nullptr"] if tensor.optional else []
        conditions += ["kAddsBias<T>"] if tensor.in_product else []
        index = self._segment_index(tensor) if tensor.extent.is_segment else ""
        return Load(tensor.node.name, pointer(tensor), element_type(tensor), " && ".join(conditions), index)

    def _segment_index(self, tensor: Tensor) -> str:
        if self.kernel.kind == "stream":
            return "at * turns + turn[v]" if tensor.extent == ROW else "at * segments + segment[v]"
        if not self.by_segment:
            return "row" if tensor.extent == ROW else "row * groups + segment[v]"
        if self._is_inner(tensor.node):
            return "item * inner_groups + inner"
        return "row" if tensor.extent == ROW and self.kernel.groups != 1 else "item"

    def _is_inner(self, node: Node) -> bool:
        """A value of each group of channels, in a kernel whose own segments are whole rows."""
        return self.by_segment and self.kernel.groups == 1 and _is_grouped(node)

    def _count(self, over: Extent) -> str:
        if over == CHANNEL:
            return "rows"
        if over == ROW:
            return "channels"
        if not self.by_segment:
            return "group_length"
        return "inner_length" if self.kernel.groups == 1 else "length"

    def _store(self, tensor: Tensor) -> Store:
        value, type_ = self.expressions.operand(tensor.node), element_type(tensor)
        narrowed = value if tensor.role == "accumulator" else f"narrow<{type_}>({value})"
        return Store(tensor.name, pointer(tensor), type_, tensor.optional, value, narrowed)

    def _momentum(self, count: Tensor) -> str:
        """The momentum of the running statistics that a count belongs to."""
        uses = (node.operands for node in self.kernel.nodes if node.op == "average_factor")
        return next(value(momentum.name) for momentum, batches in uses if batches is count.node)

    def _counts(self, pass_: Pass) -> list[Count]:
        """The counts behind the running statistics that a pass stores."""
        behind = ancestors([t.node for t in pass_.vector_stores], {t.node for t in self.kernel.vectors})
        return [Count(pointer(t), self._momentum(t)) for t in self.kernel.counts if t.node in behind]

    # The parts of a kernel

    def context(self) -> KernelContext:
        kernel = self.kernel
        if kernel.parts:
            return self._panel()
        self.owned = self._owned() if kernel.kind == "column" else set()
        scalars = [node for node in kernel.setup if node.extent == SCALAR]
        columns = [node for node in kernel.setup if node.extent == CHANNEL and node not in self.owned]
        inner = [node for node in kernel.setup if self._is_inner(node)]
        segments = [node for node in kernel.setup if node.extent.is_segment and node not in inner]
        if self.by_segment:
            self.element_vectors = set(columns)
        scalar_lines = self.expressions.statements(scalars, self._uses_outside(scalars), _constant)
        column_arrays: list[str] = []
        column_lines: list[str] = []
        if not self.by_segment:
            pinned = self._pinned(columns)
            column_arrays = [value(node.name) for node in columns if node in pinned]
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
            parameters=kernel_parameters(kernel),
            scalars=scalar_lines,
            scalar_loads=[self._load(t) for t in vectors if t.extent == SCALAR],
            column_loads=[self._load(t) for t in vectors if t.extent == CHANNEL and t.node not in self.owned],
            large=self.large,
            many_constants=self.many_constants,
            segment_loads=[self._load(t) for t in vectors if t.extent.is_segment and not self._is_inner(t.node)],
            column_arrays=column_arrays,
            column_lines=column_lines,
            segment_lines=segment_lines,
            stages=stages,
            partial_sums=slots,
            slots=self._slot_after(slots),
            loads=[self._load(t) for t in _loads(kernel)],
            tiles=self._tiles(stages),
            uses_groups=self._uses_groups(),
            uses_turns=any(t.extent == ROW for t in vectors),
            inner_groups=self._uses_inner_groups(),
        )

    def _panel(self) -> KernelContext:
        """That of its last part, with what it has of all."""
        parts = [KernelRenderer(part).context() for part in self.kernel.parts]
        return replace(
            parts[-1],
            name=self.kernel.name,
            kind=self.kernel.kind,
            comment=self._comment(),
            parameters=kernel_parameters(self.kernel),
            slots=max(part.slots for part in parts),
            loads=[self._load(t) for t in _loads(self.kernel)],
            parts=parts,
        )

    def _tiles(self, stages: list[Stage]) -> list[Load]:
        """What a column kernel's sweeps find in shared memory: later sweeps need no more of the first one's loads."""
        found = {load.name: load for stage in stages[1:] for load in stage.sweep.loads}
        return list(found.values())

    @staticmethod
    def _slot_after(slots: list[Sum]) -> int:
        return sum(2 if each.moments else 1 for each in slots)

    def _uses_outside(self, nodes: list[Node]) -> list[Node]:
        """Each use of these nodes elsewhere in the kernel."""
        inside = set(nodes)
        elsewhere = [n for n in self.kernel.nodes if n not in inside]
        used = [operand for node in elsewhere for operand in node.operands if operand in inside]
        used += [t.node for p in self.kernel.passes for t in (*p.stores, *p.vector_stores) if t.node in inside]
        return used

    def _pinned(self, nodes: list[Node]) -> set[Node]:
        """Vector values that outlive the loop that computes them, so they need an array."""
        outside = set(self._uses_outside(nodes))
        return {node for node in nodes if node in outside}

    def _column(self, nodes: list[Node], pinned: set[Node]):
        """How a per-column value is declared in its loop over `v`: in its array, or as a local constant."""
        self.element_vectors |= set(nodes) - pinned

        def declare(node: Node, text: str) -> str:
            return f"{value(node.name)}[v] = {text};" if node in pinned else _constant(node, text)

        return declare

    def _stage(self, index: int, pass_: Pass, slots: list[Sum]) -> Stage:
        kind = self.kernel.kind
        moments = [node for node in pass_.sums if node.op == "moments"] if kind == "row" else []
        keep = self.held.choose(index, pass_) if kind in ("row", "column") else []
        values = [*pass_.values, *(node for node in keep if node not in pass_.values)]
        sweep = self._sweep(pass_.loads, values, pass_.sums, pass_.stores, slots, fresh=index == 0, keep=keep)
        self.held.nodes += keep
        deviation = None
        if moments:
            operands = [node.operands[0] for node in moments]
            values = self.held.computed_again(operands)
            deviation = self._sweep(_loads(self.kernel), values, moments, (), slots, fresh=False, deviations=True)
        if kind == "column":
            return self._column_stage(sweep, pass_)
        results = list(pass_.results)
        lines = self.expressions.statements(results, self._uses_outside(results), _constant)
        stores = [self._store(t) for t in pass_.vector_stores]
        return Stage(sweep, deviation, [], lines, stores, counts=self._counts(pass_))

    def _column_stage(self, sweep: Sweep, pass_: Pass) -> Stage:
        stored = [t.node for t in pass_.vector_stores]
        results = [node for node in pass_.results if node not in self.owned]
        pinned = self._pinned(results) | set(stored).intersection(results)
        lines = self.expressions.statements(results, self._uses_outside(results), self._column(results, pinned), pinned)
        behind = ancestors(stored, {t.node for t in self.kernel.vectors})
        own = [node for node in behind if node in self.owned and not node.is_leaf]
        own_pinned = set(stored).intersection(own)
        own_lines = self.expressions.statements(own, stored, self._column(own, own_pinned), own_pinned)
        return Stage(
            sweep,
            None,
            [value(node.name) for node in results if node in pinned],
            lines,
            [self._store(t) for t in pass_.vector_stores],
            [self._load(t) for t in self.kernel.vectors if t.node in self.owned and t.node in behind],
            [value(node.name) for node in own if node in own_pinned],
            own_lines,
            self._counts(pass_),
        )

    def _owned(self) -> set[Node]:
        """Values of a column that no sweep needs: only the threads that store results of the column compute them."""
        kernel = self.kernel
        known = {t.node for t in kernel.vectors}
        swept = [operand for p in kernel.passes for n in (*p.values, *p.sums) for operand in n.operands]
        swept += [t.node for p in kernel.passes for t in p.stores]
        needed = set(ancestors(swept, known))
        stored = [t.node for p in kernel.passes for t in p.vector_stores]
        return {n for n in ancestors(stored, known) if n.extent == CHANNEL and not n.is_reduction and n not in needed}

    def _sweep(self, loads, values, sums, stores, slots, fresh, keep=(), deviations=False) -> Sweep:
        if self.held.nodes:
            targets = [t.node for t in stores] + [operand for node in sums for operand in node.operands]
            values = self.held.computed_again([*targets, *keep])
        values = [*(n for n in self._vectors_per_element if self._needed_by(n, values)), *values]
        used = {operand for node in (*values, *sums) for operand in node.operands} | {t.node for t in stores}
        # Sums that a sweep does not take itself are results of moments' second sweep.
        sinks = [operand for node in sums for operand in node.operands]
        sinks += [t.node for t in stores]
        sinks += list(keep)
        held = [n for n in self.held.nodes if n in used and n not in keep]
        lines = [_constant(n, f"{spell(n.name, 'held')}[i][v]") for n in held if self.kernel.kind == "row"]
        lines += self.expressions.statements(values, sinks, _constant)
        taken = []
        for node in sums:
            slot = next((each.slot for each in slots if each.name == node.name), 0)
            taken.append(Sum(node.name, self.expressions.operand(node.operands[0]), node.op == "moments", slot))
        columns = [self._load(t) for t in self.kernel.vectors if t.node in used and t.node in self.column_leaves]
        read = [self._load(t) for t in loads if fresh or t.node in used]
        if self.kernel.kind == "column":
            read += [Load(n.name, "", "Acc") for n in held]
        return Sweep(
            loads=read,
            columns=columns,
            segments=[self._load(t) for t in self.kernel.vectors if t.node in used and self._is_inner(t.node)],
            lines=lines,
            sums=[] if deviations else taken,
            stores=[self._store(t) for t in stores],
            constants=sum(node.extent == CHANNEL for node in used),
            fresh=fresh,
            keep_values=[(n.name, self.expressions.operand(n)) for n in keep],
            deviations=taken if deviations else [],
        )

    def _needed_by(self, node: Node, values) -> bool:
        return node in ancestors(values)

    def _uses_groups(self) -> bool:
        return self.by_segment or any(_is_grouped(t.node) for t in (*self.kernel.reads, *self.kernel.writes))

    def _uses_inner_groups(self) -> bool:
        counts = [n.attribute for node in self.kernel.nodes for n in node.operands if n.op == "count"]
        grouped = any(over not in (ROW, CHANNEL) for over in counts)
        own = self.by_segment and self.kernel.groups == 1
        return own and (grouped or any(_is_grouped(t.node) for t in self.kernel.reads))

    def _comment(self) -> list[str]:
        return [f"{self.kernel.purpose[0].upper()}{self.kernel.purpose[1:]}."]


def _is_grouped(node: Node) -> bool:
    return node.extent.is_segment and node.extent != ROW


def _constant(node: Node, text: str) -> str:
    return f"const Acc {value(node.name)} = {text};"


def _loads(kernel: Kernel) -> list[Tensor]:
    return list({t.name: t for p in kernel.passes for t in p.loads}.values())
