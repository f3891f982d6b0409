"""Assembles one kernel from what it should compute: finds its loads, orders its values, places its vector values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusegen.errors import InternalError
from fusegen.ir.axes import Dim
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.programs.model import Kernel, Pass, Tensor

Known = Mapping[Node, Tensor]


@dataclass(frozen=True)
class PassSpec:
    """What a pass should compute: the sums it takes, the full tensors it stores."""

    sums: Sequence[Node] = ()
    stores: Sequence[Tensor] = ()

    @property
    def targets(self) -> list[Node]:
        return [*(t.node for t in self.stores), *(operand for node in self.sums for operand in node.operands)]


@dataclass(frozen=True)
class KernelSpec:
    """What a kernel should compute.

    vector_stores: results of a channel, row or group each, or scalar; each is stored as soon as its sums are known.
    finished: reductions that are read back from partial results before anything else.
    """

    name: str
    kind: str
    passes: Sequence[PassSpec] = ()
    vector_stores: Sequence[Tensor] = ()
    partial_sums: Sequence[Node] = ()
    finished: Sequence[Node] = ()
    groups: Dim = 1
    purpose: str = ""

    def build(self, known: Known) -> Kernel:
        """The kernel, with every value in the order in which it can be computed. known: nodes that lie in memory."""
        return _Build(self, known).kernel()


class _Build:
    """place: for sums and what follows from them, the pass that must be done first; -1 for what needs none."""

    def __init__(self, spec: KernelSpec, known: Known) -> None:
        self.spec, self.known = spec, known
        self.place = {node: 0 for node in spec.finished}
        for index, pass_ in enumerate(spec.passes):
            self.place |= {node: index for node in pass_.sums}
        self.stop = {*known, *self.place}
        targets = [tensor.node for tensor in spec.vector_stores]
        self.needed = ancestors([*targets, *(n for pass_ in spec.passes for n in pass_.targets)], self.stop)
        self.vectors = [n for n in self.needed if not (n.is_full or n.is_leaf or n in self.stop)]
        for node in self.vectors:
            if node.is_reduction:
                raise InternalError(f"kernel {spec.name} needs {node!r}, which nothing computes")
            self.place[node] = max((self.place.get(operand, -1) for operand in node.operands), default=-1)

    def kernel(self) -> Kernel:
        spec = self.spec
        if spec.passes:
            passes = tuple(self._pass(index, pass_) for index, pass_ in enumerate(spec.passes))
            setup = tuple(node for node in self.vectors if self.place[node] < 0)
        else:
            passes, setup = (Pass((), (), (), (), tuple(self.vectors), tuple(spec.vector_stores)),), ()
        return Kernel(
            name=spec.name,
            kind=spec.kind,
            vectors=tuple(self.known[n] for n in self.needed if n in self.known and not n.is_full),
            setup=setup,
            passes=passes,
            partial_sums=tuple(spec.partial_sums or spec.finished),
            purpose=spec.purpose,
        )

    def _pass(self, index: int, pass_: PassSpec) -> Pass:
        full = [node for node in ancestors(pass_.targets, self.stop) if node.is_full]
        found = [self.known[node] for node in full if node in self.known]
        loads = (*found, *(tensor.taps for tensor in found if tensor.taps is not None))
        values = tuple(node for node in full if node not in self.known and not node.is_leaf)
        stored = tuple(t for t in self.spec.vector_stores if max(self.place.get(t.node, -1), 0) == index)
        results = tuple(node for node in self.vectors if self.place[node] == index)
        return Pass(loads, values, tuple(pass_.sums), tuple(pass_.stores), results, stored)


def check_stored(outputs: Sequence[Tensor], kernels: Sequence[Kernel]) -> None:
    """Raises InternalError where no kernel stores an output, which would be memory as it was. Counts are added to by
    the kernels that move running statistics."""
    stored = {tensor.name for kernel in kernels for each in (kernel, *kernel.parts) for tensor in each.writes}
    for tensor in outputs:
        if tensor.role != "count" and tensor.name not in stored:
            raise InternalError(f"no kernel stores {tensor.name}: {', '.join(each.name for each in kernels)}")
