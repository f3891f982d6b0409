"""Chooses which affine chains of a program are folded: those that make its elements cheaper in every schedule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fusegen.ir.graph import Graph, Node, ancestors
from fusegen.ir.simplify import ELEMENT_WISE, simplify
from fusegen.plan.cost import coefficient_operations, program_operations
from fusegen.plan.model import Program, Tensor
from fusegen.plan.schedule import Scheduler

Cost = tuple[float, int]


class Folding:
    """Makes a program's schedules, from the graph as it is and from simplified ones, and takes the cheapest.

    rounded: see `simplify`.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        reasons: Sequence[str] = (),
        rounded: Collection[Node] = (),
    ) -> None:
        self.graph, self.name, self.reasons, self.rounded = graph, name, reasons, rounded
        self.inputs, self.outputs = inputs, outputs
        self.given = {tensor.node for tensor in inputs}

    def unfolded(self) -> Program:
        """The program of the graph as autodiff left it."""
        return Scheduler(self.name, self.inputs, self.outputs, self.reasons).program()

    def program(self) -> Program:
        """The cheapest program that was found.

        Everything is folded at first. Then each value, from the first to the last, is kept as it is in the spec
        where that costs less. No schedule may become dearer for the sake of another.
        """
        kept = self._candidates()
        opaque: set[Node] = set()
        best = self._simplified(opaque)
        least = _cost(best)
        for node in kept:
            attempt = self._simplified(opaque | {node})
            cost = _cost(attempt)
            if cost < least:
                best, least, opaque = attempt, cost, opaque | {node}
        plain = self._simplified(kept)
        found, limits = program_operations(best), program_operations(plain)
        return best if found.keys() == limits.keys() and all(found[k] <= limits[k] for k in found) else plain

    def _candidates(self) -> list[Node]:
        nodes = ancestors([tensor.node for tensor in self.outputs], self.given)
        return [n for n in nodes if n.op in ELEMENT_WISE and n.extent.is_full and n not in self.given]

    def _simplified(self, opaque: Collection[Node]) -> Program:
        nodes = [tensor.node for tensor in self.outputs]
        found = simplify(self.graph, nodes, self.given, self.rounded, opaque)
        outputs = [replace(tensor, node=found[tensor.node]) for tensor in self.outputs]
        return Scheduler(self.name, self.inputs, outputs, self.reasons).program()


def _cost(program: Program) -> Cost:
    """Operations for each element, then those of coefficients."""
    return sum(program_operations(program).values()), coefficient_operations(program)
