"""Assembles one kernel from what it should compute: finds its loads, orders its values, places its vector values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fusegen.errors import InternalError
from fusegen.ir.extent import Dim
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.model import Kernel, KernelKind, Pass, Tensor

Known = Mapping[Node, Tensor]


@dataclass
class Sweep:
    """One pass to be: the sums it takes, the full tensors it stores."""

    sums: Sequence[Node] = ()
    stores: Sequence[Tensor] = ()


@dataclass
class Draft:
    """A kernel to be.

    known: nodes that lie in memory. vector_stores: per-channel, per-segment or scalar results; each is stored
    as soon as its
    sums are known. finished: reductions that are read back from partial results before anything else.
    """

    name: str
    kind: KernelKind
    known: Known
    sweeps: Sequence[Sweep] = ()
    vector_stores: Sequence[Tensor] = ()
    partial_sums: Sequence[Node] = ()
    finished: Sequence[Node] = ()
    groups: Dim = 1
    purpose: str = ""
    _place: dict[Node, int] = field(default_factory=dict)

    def build(self) -> Kernel:
        """The kernel, with every value in the order in which it can be computed."""
        sweep_of = {node: 0 for node in self.finished}
        for index, sweep in enumerate(self.sweeps):
            sweep_of.update({node: index for node in sweep.sums})
        inside = set(sweep_of)
        stop = set(self.known) | inside
        needed = self._needed(stop)
        vectors: list[Node] = []
        for node in needed:
            if node.extent.is_full or node in inside or node in self.known or node.is_leaf:
                continue
            if node.is_reduction:
                raise InternalError(f"kernel {self.name} needs {node!r}, which nothing computes")
            vectors.append(node)
            self._place[node] = max((self._place_of(operand, sweep_of) for operand in node.operands), default=-1)
        passes = tuple(self._pass(i, sweep, stop, vectors, sweep_of) for i, sweep in enumerate(self.sweeps))
        if not self.sweeps:
            results = tuple(node for node in vectors)
            passes = (Pass((), (), (), (), results, tuple(self.vector_stores)),)
            vectors = []
        tensors = [self.known[node] for node in needed if node in self.known and not node.extent.is_full]
        setup = tuple(node for node in vectors if self._place[node] < 0)
        return Kernel(
            name=self.name,
            kind=self.kind,
            vectors=tuple(tensors),
            setup=setup,
            passes=passes,
            partial_sums=tuple(self.partial_sums or self.finished),
            groups=self.groups,
            purpose=self.purpose,
        )

    def _needed(self, stop: set[Node]) -> list[Node]:
        targets = [tensor.node for tensor in self.vector_stores]
        for sweep in self.sweeps:
            targets += [tensor.node for tensor in sweep.stores]
            targets += [operand for node in sweep.sums for operand in node.operands]
        return ancestors(targets, stop)

    def _place_of(self, node: Node, sweep_of: Mapping[Node, int]) -> int:
        if node in sweep_of:
            return sweep_of[node]
        return self._place.get(node, -1)

    def _pass(
        self, index: int, sweep: Sweep, stop: set[Node], vectors: Sequence[Node], sweep_of: Mapping[Node, int]
    ) -> Pass:
        targets = [tensor.node for tensor in sweep.stores] + [
            operand for node in sweep.sums for operand in node.operands
        ]
        slice_ = [node for node in ancestors(targets, stop) if node.extent.is_full]
        loads = tuple(self.known[node] for node in slice_ if node in self.known)
        values = tuple(node for node in slice_ if node not in self.known)
        stored = tuple(t for t in self.vector_stores if self._place_of(t.node, sweep_of) == index)
        results = tuple(node for node in vectors if self._place[node] == index)
        return Pass(loads, values, tuple(sweep.sums), tuple(sweep.stores), results, stored)
