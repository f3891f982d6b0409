"""A program as its passes over the elements: what each loads, computes, sums and stores, and what follows from sums.

Every kernel of a program takes its work from here: a persistent one does several passes, others one.
Pass number `len(passes)` of a program with scalar results goes over the channels and reduces them to scalars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from fusegen.ir.axes import SCALAR
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.launches.kinds import KERNELS, Stays
from fusegen.plan.programs.model import Kernel, Program, Tensor
from fusegen.plan.programs.register_cache import cached_values
from fusegen.plan.programs.units import Unit

BEFORE = -1
"""The place of what follows from tensors alone."""


@dataclass(frozen=True)
class ElementPass:
    """One pass over the elements. unit: of what its sums have one value each, None without sums.

    reads: full-size tensors. values: full-size values in order. small: values of fewer elements that these use.
    """

    unit: Unit | None
    reads: tuple[Tensor, ...]
    values: tuple[Node, ...]
    sums: tuple[Node, ...]
    stores: tuple[Tensor, ...]
    small: frozenset[Node]

    @property
    def targets(self) -> list[Node]:
        """What the pass is there for: the operands of sums, and what is stored."""
        return [*(operand for node in self.sums for operand in node.operands), *(t.node for t in self.stores)]


class Passes:
    """The passes of a program, and where each value that is not of full size is computed.

    given: the tensors in memory, by node. first_resident: the pass with which persistent kernels begin; the
    last pass where there are none.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.given: Mapping[Node, Tensor] = {tensor.node: tensor for tensor in program.inputs}
        last = self._pass(program.terminal_unit, program.terminal, program.full_outputs)
        self.passes = (*(self._pass(p.unit, p.sums, ()) for p in program.phases), last)
        self.first_resident = program.first_resident
        self._pass_of = {node: i for i, each in enumerate(self.passes) for node in each.sums}
        self._pass_of |= dict.fromkeys(program.scalar_sums, len(self.passes))
        self._places: dict[Node, int] = {}

    def _pass(self, unit: Unit | None, sums: Sequence[Node], stores: Sequence[Tensor]) -> ElementPass:
        targets = [*(operand for node in sums for operand in node.operands), *(t.node for t in stores)]
        reductions = [node for node in ancestors(targets, self.given) if node.is_reduction]
        full = [n for n in ancestors(targets, {*self.given, *reductions}) if n.is_full]
        values = tuple(node for node in full if node not in self.given and not node.is_leaf)
        used = {operand for node in (*values, *sums) for operand in node.operands} | {t.node for t in stores}
        reads = tuple(self.given[node] for node in full if node in self.given)
        small = frozenset(node for node in used if not node.is_full)
        return ElementPass(unit, reads, values, tuple(sums), tuple(stores), small)

    @property
    def last(self) -> int:
        return len(self.passes) - 1

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        """Every full-size tensor that is read, once."""
        return tuple({t.name: t for each in self.passes for t in each.reads}.values())

    def kernel(self, stays: Stays) -> Kernel | None:
        """The kernel whose elements stay there."""
        return next((kernel for kernel in self.program.kernels if KERNELS[kernel.kind].stays is stays), None)

    # Values of full size

    @cached_property
    def level(self) -> dict[Node, int]:
        """The first pass that computes each full-size value, for itself or to keep it for later ones."""
        found: dict[Node, int] = {}
        for index, each in enumerate(self.passes):
            for node in each.values:
                found.setdefault(node, index)
        for by_pass in self.cached.values():
            for index, nodes in enumerate(by_pass):
                for node in nodes:
                    found[node] = min(found.get(node, index), index - 1)
        return found

    @cached_property
    def cached(self) -> dict[Stays, list[set[Node]]]:
        """By pass, the values that earlier passes have cached, of kernels whose elements stay in registers and in
        shared memory."""
        found = {stays: [set[Node]() for _ in self.passes] for stays in (Stays.REGISTERS, Stays.SHARED)}
        for stays, by_pass in found.items():
            kernel = self.kernel(stays)
            for index, nodes in enumerate(cached_values(kernel) if kernel else ()):
                for later in range(self.first_resident + index + 1, len(self.passes)):
                    by_pass[later] |= set(nodes)
        return found

    def tile_reads(self) -> set[str]:
        """The tensors that later passes of a kernel read again from its tile in shared memory."""
        found = set()
        for index in range(self.first_resident + 1, len(self.passes)):
            stop = {*self.given, *self._pass_of, *self.cached[Stays.SHARED][index]}
            needed = ancestors(self.passes[index].targets, stop)
            found |= {self.given[node].name for node in needed if node in self.given and node.is_full}
        return found

    # Values of fewer elements

    def place(self, node: Node) -> int:
        """The pass whose sums must be known before a value can be computed; BEFORE where none must."""
        if node not in self._places:
            if node in self._pass_of:
                place = self._pass_of[node]
            elif node in self.given:
                place = BEFORE
            else:
                place = max((self.place(operand) for operand in node.operands), default=BEFORE)
            self._places[node] = place
        return self._places[node]

    @cached_property
    def small(self) -> list[Node]:
        """Every value that is not of full size and is no leaf, tensor or reduction, in order."""
        sinks = [*(t.node for t in self.program.outputs), *(o for n in self.program.scalar_sums for o in n.operands)]
        sinks += [target for each in self.passes for target in each.targets]
        nodes = ancestors(sinks, self.given)
        return [n for n in nodes if not n.is_full and not (n.is_leaf or n.is_reduction or n in self.given)]

    @cached_property
    def needed_by_elements(self) -> list[set[Node]]:
        """For each pass, and after them for the channels that become scalars, the values and tensors that an element
        needs when all that follows from earlier sums is at hand."""
        used = [each.small for each in self.passes]
        used.append(frozenset(operand for node in self.program.scalar_sums for operand in node.operands))
        return [self._with_operands(nodes) for nodes in used]

    @cached_property
    def _border(self) -> set[Node]:
        """Tensors, and what follows from sums."""
        return {*self.given, *(n for n in (*self.small, *self._pass_of) if self.place(n) != BEFORE)}

    def _with_operands(self, nodes: Iterable[Node]) -> set[Node]:
        """These and what they follow from, back to tensors and to what follows from sums."""
        return set(ancestors(nodes, self._border))

    @cached_property
    def followed(self) -> set[Node]:
        """What follows from sums and is needed further on: by elements of later passes, or by what follows there or is
        only stored there."""
        found: set[Node] = set()
        stack = [n for needed in self.needed_by_elements for n in needed if self._follows(n)]
        stack += self._stored_later()
        stack += [n for tensors in self.scratch for n in (tensor.node for tensor in tensors) if self._follows(n)]
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                if node.is_reduction:
                    continue
                place = self.place(node)
                follows = [o for o in node.operands if self._follows(o)]
                stack += [o for o in follows if not o.is_reduction or self.place(o) != place]
        return found

    def followed_with(self, index: int) -> list[Node]:
        """What follows once the sums of a pass are known, and these sums, as far as it is needed further on, in
        order."""
        return sorted((node for node in self.followed if self.place(node) == index), key=lambda node: node.index)

    def _stored_later(self) -> list[Node]:
        """What follows from sums, and outputs that are known with the sums of later passes follow from."""
        found = []
        for index, tensors in enumerate(self.stored):
            for node in ancestors([t.node for t in tensors], self.given):
                if node not in self.given and self.place(node) == index and not node.is_reduction:
                    found += [o for o in node.operands if self.place(o) < index and self._follows(o)]
        return found

    def _follows(self, node: Node) -> bool:
        if node in self.given or node.is_leaf or node.op == "moments":
            return False
        return self.place(node) != BEFORE

    @cached_property
    def derived(self) -> list[Node]:
        """What follows from tensors alone, and is needed by elements or by what follows from sums."""
        needed = {n for each in self.needed_by_elements for n in each}
        needed |= self._with_operands(operand for node in self.followed for operand in node.operands)
        scalars = {n for n in self.small if n.axes == SCALAR}
        return [n for n in self.small if self.place(n) == BEFORE and (n in needed or n in scalars)]

    @cached_property
    def finished(self) -> list[list[Node]]:
        """For each pass, and for the channels, what is only stored once its sums are known."""
        count = len(self.passes) + bool(self.program.scalar_sums)
        found: list[list[Node]] = [[] for _ in range(count)]
        for index, tensors in enumerate(self.stored):
            at_hand = {*self.given, *self._pass_of, *self.followed, *self.derived}
            for node in ancestors([t.node for t in tensors], at_hand):
                if node not in at_hand and not node.is_leaf:
                    found[index].append(node)
        return found

    @cached_property
    def stored(self) -> list[list[Tensor]]:
        """For each pass, and for the channels, the outputs that are not of full size and known with its sums."""
        found: list[list[Tensor]] = [[] for _ in range(len(self.passes) + 1)]
        for tensor in self.program.outputs:
            if not tensor.is_full and tensor.role != "count":
                found[self._stored_with(tensor)].append(tensor)
        return found

    def _stored_with(self, tensor: Tensor) -> int:
        """The pass whose sums an output is known with; of what none must be known for, the first that sums values of
        its kind, as many as rows or as channels."""
        if (place := self.place(tensor.node)) != BEFORE:
            return place
        units = ((i, each.unit) for i, each in enumerate(self.passes) if each.unit is not None)
        return next((i for i, unit in units if unit.stores == tensor.unit.stores), 0)

    @cached_property
    def scratch(self) -> list[list[Tensor]]:
        """For each pass what lies in the workspace for later kernels of a two-pass schedule."""
        found: list[list[Tensor]] = [[] for _ in range(len(self.passes) + 1)]
        tensors = {t.name: t for s in self.program.schedules[-1:] for k in s.kernels for t in k.writes if t.scratch}
        for tensor in tensors.values():
            found[self.place(tensor.node)].append(tensor)
        return found

    @cached_property
    def in_memory(self) -> list[tuple[Tensor, int]]:
        """Every tensor that is not of full size and is read, with the pass whose sums it comes from, or BEFORE."""
        found = [(t, BEFORE) for t in self.program.inputs if not t.is_full and t.role != "seed"]
        results = [(t, i) for i, tensors in enumerate(self.stored) for t in tensors if t.role == "accumulator"]
        results += [(t, i) for i, tensors in enumerate(self.scratch) for t in tensors]
        found += [(Tensor(node.name, node, "channel"), BEFORE) for node in self.channel_numbers]
        found += [(Tensor(node.name, node, "draw"), BEFORE) for node in self.program.draws if not node.is_full]
        return found + [(tensor, i) for tensor, i in results if self.uses(tensor, i)]

    @cached_property
    def channel_numbers(self) -> set[Node]:
        """The numbers of the channels, where elements use them: kernels find them where they find tensors."""
        return {node for each in self.passes for node in each.small if node.op == "channel"}

    @cached_property
    def _needed(self) -> list[set[Node]]:
        """For each pass, and for the channels, what its elements need or what follows from its sums does."""
        operands: list[list[Node]] = [[] for _ in self.needed_by_elements]
        for node in self.followed:
            operands[self.place(node)] += node.operands
        return [n | self._with_operands(more) for n, more in zip(self.needed_by_elements, operands, strict=True)]

    def uses(self, tensor: Tensor, made: int = BEFORE) -> int:
        """The passes after the one that made a tensor, as bits, whose elements or what follows need it.

        What is only stored follows, too, but that of columns: kernels of their own finish those, and read all there is.
        """
        needed = [*self._needed]
        if tensor.unit in (Unit.ROW, Unit.GROUP):
            stored = [self._with_operands(o for n in nodes for o in n.operands) for nodes in self.finished]
            needed = [each | more for each, more in zip_longest(needed, stored, fillvalue=set[Node]())]
        return sum(1 << i for i, nodes in enumerate(needed) if i > made and tensor.node in nodes)

    def tensors_of_elements(self, index: int) -> list[Tensor]:
        """The tensors of fewer elements that the elements of a pass need when it begins from memory."""
        needed = self.needed_by_elements[index]
        return [t for t, _ in self.in_memory if t.node in needed]
