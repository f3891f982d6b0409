"""What of a program depends on which reductions: the phases, and what each of them makes known.

Every answer comes from a walk or two over the graph, so that planning grows with its size and not with a power of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from fusegen.ir.axes import SCALAR
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.programs.model import Phase, Tensor
from fusegen.plan.programs.units import Unit, unit_of, within

_ORDER = {
    unit: place for place, unit in enumerate((Unit.ROW, Unit.GROUP, Unit.SAMPLE, Unit.SAMPLE_GROUP, Unit.CHANNEL))
}


class PhaseAnalysis:
    """The reductions that the outputs of a program need.

    nodes: everything it needs, in order. reductions: but those to scalars, `scalar_sums`. terminal: sums of columns
    that nothing but results of channels and scalars waits for. phases: the other reductions, in order.

    The level of a value is the number of phases, from the first on, that must be done before it can be computed;
    `last` if it follows from a terminal sum, more than that if from a scalar sum.
    """

    def __init__(self, given: Mapping[Node, Tensor], outputs: Sequence[Tensor]) -> None:
        self.given = given
        self.full_outputs = [t for t in outputs if t.is_full]
        # Counts are added to by the kernels that move the running statistics.
        self.scalar_outputs = [t for t in outputs if t.axes == SCALAR and t.role != "count"]
        self.vector_outputs = [t for t in outputs if not t.is_full and t.axes != SCALAR]
        self.nodes = ancestors([t.node for t in outputs], given)
        found = [n for n in self.nodes if n.is_reduction and n not in given]
        self.reductions = [n for n in found if n.axes != SCALAR]
        self.scalar_sums = [n for n in found if n.axes == SCALAR]
        self.terminal = self._terminal()
        self.phases = self._phases()
        self.last = len(self.phases) + 1
        self.level = self._levels()
        self._first_uses = self._frontiers()

    def _terminal(self) -> tuple[Node, ...]:
        """Sums of columns, of all rows or of samples, that only feed results of as many values: the last pass can take
        them, whatever else is there."""
        sinks = [t.node for t in self.full_outputs]
        sinks += [operand for node in self.reductions for operand in node.operands]
        awaited = set(ancestors(sinks, self.given))
        units = (Unit.CHANNEL, Unit.SAMPLE)
        return tuple(n for n in self.reductions if unit_of(n.axes) in units and n not in awaited)

    def _walk(self, own: Mapping[Node, int] | None = None) -> dict[Node, int]:
        """For each node the highest number of a reduction among it and what it follows from. own: those numbers;
        without them, one more than the highest number of its operands."""
        waiting = set(self.reductions).difference(self.terminal)
        found: dict[Node, int] = {}
        for node in self.nodes:
            before = 0 if node in self.given else max((found[o] for o in node.operands), default=0)
            if own is None:
                found[node] = before + (node in waiting)
            else:
                found[node] = max(before, own.get(node, 0))
        return found

    def _phases(self) -> list[Phase]:
        depth = self._walk()
        nodes = [n for n in self.reductions if n not in self.terminal]
        # Rows before groups: what follows from the sums of a group may need those of its row.
        nodes.sort(key=lambda n: (depth[n], _ORDER[unit_of(n.axes)], str(n.axes), n.index))
        return [Phase(axes, tuple(g)) for (_, axes), g in groupby(nodes, key=lambda n: (depth[n], n.axes))]

    def _levels(self) -> dict[Node, int]:
        own = {node: i for i, phase in enumerate(self.phases, 1) for node in phase.sums}
        own |= dict.fromkeys(self.terminal, self.last)
        own |= dict.fromkeys(self.scalar_sums, self.last + 1)
        return self._walk(own)

    @property
    def from_memory(self) -> bool:
        """Whether passes over memory alone know what elements need: values of samples, and windows of positions by
        which elements are stored or read."""
        if any(tensor.pool for tensor in (*self.given.values(), *self.full_outputs)):
            return True
        needed = (node for node in self.nodes if node in self.given or self.level[node] < self.last)
        return any(unit_of(node.axes).of_samples for node in needed)

    @property
    def misplaced(self) -> set[Node]:
        """The values that differ within what the pass reduces whose sums they follow from."""
        axes = dict(enumerate((within(phase.axes) for phase in self.phases), 1))
        computed = (n for n in self.nodes if not (n.is_full or n.is_leaf or n.is_reduction or n in self.given))
        return {n for n in computed if self.level[n] in axes and not n.axes <= axes[self.level[n]]}

    def _frontiers(self) -> list[list[Node]]:
        """By level, the small values that something of a higher level uses, or an element does."""
        found: dict[Node, None] = {}
        for user in self.nodes:
            if user in self.given:
                continue
            for node in user.operands:
                later = user.is_full or user.is_reduction or self.level[user] > self.level[node]
                if later and not node.is_full and node.op != "moments":
                    found[node] = None
        lists: list[list[Node]] = [[] for _ in range(self.last + 2)]
        for node in sorted(found, key=lambda n: n.index):
            lists[self.level[node]].append(node)
        return lists

    def stored(self, level: int) -> list[Tensor]:
        """What must reach memory once so many phases are done: results, and values that later passes use."""
        outputs = [t for t in self.vector_outputs if self._stored_after(t) == level]
        return self._with_scratch(outputs, self._first_uses[level])

    def _stored_after(self, tensor: Tensor) -> int:
        """The level of a result. What follows from no reduction is stored with the first that has values of its kind,
        as many as rows or as channels: zeros for a bias of channels that nothing uses."""
        if level := self.level[tensor.node]:
            return level
        levels = (i for i, phase in enumerate(self.phases, 1) if phase.unit.stores == tensor.unit.stores)
        return next(levels, self.last if tensor.unit is Unit.CHANNEL else 1)

    def stored_at_last(self, known: int, earlier: Collection[str]) -> list[Tensor]:
        """The tensors that must reach memory once every reduction but the scalar ones is done. known: the level up to
        which values are in memory. earlier: names of results that are in memory already."""
        outputs = [t for t in self.vector_outputs if t.name not in earlier and self.level[t.node] <= self.last]
        return self._with_scratch(outputs, self._needed_by_scalar_sums(known))

    def _with_scratch(self, outputs: Sequence[Tensor], needed: Iterable[Node]) -> list[Tensor]:
        there = {t.node for t in outputs if t.role == "accumulator"}
        scratch = [Tensor(n.name, n, "accumulator", scratch=True) for n in needed if n not in there]
        return [*outputs, *scratch]

    def _needed_by_scalar_sums(self, known: int) -> list[Node]:
        found: set[Node] = set()
        stack = [operand for node in self.scalar_sums for operand in node.operands]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node in seen or node in self.given or self.level[node] <= known:
                continue
            seen.add(node)
            if not node.is_full and self.level[node] <= self.last and node.op != "moments":
                found.add(node)
            else:
                stack.extend(node.operands)
        return sorted(found, key=lambda node: node.index)
