"""Runs a program pass by pass as kernels do, in NumPy, and compares every value with the one that the graph gives it.

What a kernel knows is modelled, and nothing else: a pass that begins from memory has the tensors that lie there and
that it is said to use, and what is derived of them. The record in which something follows from the sums of a pass is
that of one channel, row or group, the unit that the pass reduces: it has no value that differs within that unit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fusegen.ir.axes import CHANNEL, SCALAR, Axes
from fusegen.ir.evaluate import Sizes, Value, agree, numbers, reduce, value_of
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.launches.kinds import KERNELS, Stays
from fusegen.plan.programs.model import Tensor
from fusegen.plan.programs.passes import Passes
from fusegen.plan.programs.units import unit_of, within

ROUNDING = 1e-9  # of the largest element: sums are taken in another order


class Fault(Exception):
    """A plan that does not compute its graph: the pass, the value, and what is wrong."""


@dataclass
class Interpreter:
    """One call of a program.

    given: the arrays of its inputs, and of what its dropouts draw, by name. truth: the value of each of its nodes.
    rounding: what differs by less is equal. resident: a persistent kernel does the passes from `first_resident` on;
    else each pass begins from memory. memory: every tensor that lies there, by name.
    """

    passes: Passes
    given: Mapping[str, Value]
    truth: Mapping[Node, Value]
    sizes: Sizes
    rounding: float
    resident: bool
    memory: dict[str, Value] = field(default_factory=dict)

    def run(self) -> dict[str, Value]:
        """The outputs by name. Raises Fault."""
        self.memory = {**self.given, **{node.name: numbers("C", self.sizes) for node in self.passes.channel_numbers}}
        count = len(self.passes.passes)
        first = self.passes.first_resident if self.resident else count
        record: dict[Node, Value] = {}
        cached: dict[Node, Value] = {}
        for index in range(count):
            if index <= first:
                record = self._begin(index, range(index, count) if index == first else (index,))
            totals = self._elements(index, record, cached, index > first)
            unit = self.passes.passes[index].unit
            if unit is not None and unit.leaves_partials and not self._in_column_kernel(index, first):
                # Another kernel finishes the sums of columns: what it needs lies in memory.
                record = self._begin(index, None)
            for axes in self._axes(index):
                self._after(index, axes, totals, record, index >= first)
        if self.passes.program.scalar_sums:
            record = self._begin(count, (count,))
            totals = {node: self._sum(count, node, record, SCALAR) for node in self.passes.program.scalar_sums}
            self._after(count, SCALAR, totals, record, True)
        return self.memory

    def _in_column_kernel(self, index: int, first: int) -> bool:
        return index >= first and self.passes.kernel(Stays.SHARED) is not None

    def _axes(self, index: int) -> list[Axes]:
        """What the sums of a pass have one value for each element of: the last one may take sums of all rows and of
        samples, each of which another kernel finishes."""
        program = self.passes.program
        if index < len(program.phases):
            return [program.phases[index].axes]
        return list(dict.fromkeys(node.axes for node in program.terminal)) or [CHANNEL]

    def _begin(self, index: int, uses: Iterable[int] | None) -> dict[Node, Value]:
        """What a kernel knows of channels, rows and groups when it begins with a pass. uses: the passes that it does;
        None for one that reads all that lies in memory."""
        known: dict[Node, Value] = {}
        wanted = None if uses is None else sum(1 << each for each in uses)
        for tensor, made in self.passes.in_memory:
            bits = self.passes.uses(tensor, made)
            if made < index and (wanted is None or not bits or bits & wanted or tensor.axes == SCALAR):
                if tensor.name in self.memory:  # a persistent kernel stores nothing for itself
                    known[tensor.node] = self.memory[tensor.name]
        for node in self.passes.derived:
            if all(operand in known or _is_constant(operand) for operand in node.operands):
                known[node] = self._value(index, node, known)
        return known

    def _elements(
        self, index: int, record: Mapping[Node, Value], cached: dict[Node, Value], again: bool
    ) -> dict[Node, Value]:
        """The sums of a pass. Stores what it has of full size. cached: values of elements that the kernel keeps.
        again: the kernel has done earlier passes."""
        each = self.passes.passes[index]
        known = {**record, **{tensor.node: self.memory[tensor.name] for tensor in each.reads}}
        kept = self._kept(index) if again else set()
        for node in kept:
            if node not in cached:
                raise Fault(f"pass {index} takes {node.name} from earlier ones, which do not compute it")
            known[node] = cached[node]
        for node in self._computed(index, kept):
            cached[node] = known[node] = self._value(index, node, known)
        for tensor in each.stores:
            self.memory[tensor.name] = self._known(index, tensor.node, known)
        return {node: self._sum(index, node, known, node.axes) for node in each.sums}

    def _kept(self, index: int) -> set[Node]:
        """The values of elements that a persistent kernel has from earlier passes when it begins a pass."""
        stays = Stays.SHARED if self.passes.kernel(Stays.SHARED) else Stays.REGISTERS
        return self.passes.cached[stays][index] if self.resident and index < len(self.passes.passes) else set()

    def _computed(self, index: int, kept: Collection[Node]) -> list[Node]:
        """The values of elements that a pass computes: those that it needs, and those that it keeps for later ones."""
        each = self.passes.passes[index]
        later = self._kept(index + 1).difference(kept, each.values)
        if not later:
            return [node for node in each.values if node not in kept]
        targets = [*each.values, *later]
        small = (node for node in ancestors(targets) if not node.is_full)
        nodes = ancestors(targets, {*self.passes.given, *kept, *small})
        return [n for n in nodes if n.is_full and not (n.is_leaf or n in kept or n in self.passes.given)]

    def _sum(self, index: int, node: Node, known: Mapping[Node, Value], axes: Axes) -> Value:
        """Of all elements that the pass goes over, of which there is one for each channel in the pass behind all."""
        (operand,) = node.operands
        every = CHANNEL if index == len(self.passes.passes) else node.view
        x = np.broadcast_to(np.asarray(self._known(index, operand, known)), self.sizes.shape(every))
        return self._checked(index, node, reduce(node.op, x, axes, self.sizes))

    def _after(
        self, index: int, axes: Axes, totals: Mapping[Node, Value], record: dict[Node, Value], resident: bool
    ) -> None:
        """What follows from the sums of a pass, in `record`, and what is stored once they are known. axes: of the sums,
        and so of what can be told apart here."""
        passes, own = self.passes, within(axes)
        is_one = index >= len(passes.passes) or len(self._axes(index)) == 1
        known = {node: value for node, value in {**record, **totals}.items() if node.axes <= own}
        for node in passes.followed_with(index):
            known[node] = totals[node] if node in totals else self._of_unit(index, node, known, axes)
            record[node] = known[node]
        for node in passes.finished[index] if index < len(passes.finished) else ():
            if is_one or node.axes <= own:
                known[node] = self._of_unit(index, node, known, axes)
        scratch = [
            tensor
            for tensor in passes.scratch[index]
            if not self.resident or not resident or passes.uses(tensor, index) >> len(passes.passes)
        ]
        for tensor in (*passes.stored[index], *scratch):
            if is_one or tensor.axes == axes:
                self._store(index, tensor, known, axes)

    def _store(self, index: int, tensor: Tensor, known: Mapping[Node, Value], axes: Axes) -> None:
        if tensor.axes != axes and not (unit_of(tensor.axes).of_samples and unit_of(axes).of_samples):
            raise Fault(f"pass {index} has one value for each element of {axes}, and stores {tensor.name}{tensor.axes}")
        self.memory[tensor.name] = self._known(index, tensor.node, known)

    def _of_unit(self, index: int, node: Node, known: Mapping[Node, Value], axes: Axes) -> Value:
        if not node.axes <= within(axes):
            raise Fault(f"pass {index} has one value for each element of {axes}, and derives {node!r}")
        return self._value(index, node, known)

    def _value(self, index: int, node: Node, known: Mapping[Node, Value]) -> Value:
        operands = [self._known(index, operand, known, node) for operand in node.operands]
        return self._checked(index, node, value_of(node, operands, self.sizes))

    def _known(self, index: int, node: Node, known: Mapping[Node, Value], user: Node | None = None) -> Value:
        if node in known:
            return known[node]
        if _is_constant(node):
            return self.truth[node]
        needed = f" for {user.name}" if user is not None else ""
        raise Fault(f"pass {index} needs {node!r}{needed}, which is not known there")

    def _checked(self, index: int, node: Node, value: Value) -> Value:
        if not agree(value, self.truth[node], ROUNDING, self.rounding):
            raise Fault(f"pass {index} computes {node!r} otherwise than the graph")
        return value


def _is_constant(node: Node) -> bool:
    """Whether every kernel has a leaf at hand: constants, counts, and what is drawn for an element."""
    return node.op in ("scalar", "literal", "count") or (node.op == "draw" and node.is_full)


def is_resident(passes: Passes) -> bool:
    """Whether some kernel does several passes, or the last one, with elements on chip."""
    return any(KERNELS[kernel.kind].stays in (Stays.REGISTERS, Stays.SHARED) for kernel in passes.program.kernels)
