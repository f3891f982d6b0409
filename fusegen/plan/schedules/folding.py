"""Chooses which affine chains of a program are folded: those that make its elements cheaper in every schedule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from fusegen.ir.graph import Graph, Node, ancestors
from fusegen.ir.rewrites import REWRITES
from fusegen.ir.simplify import ELEMENT_WISE, simplify
from fusegen.plan.programs.model import Program, Tensor
from fusegen.plan.proofs.proof import prove
from fusegen.plan.schedules.regrouping import regrouped
from fusegen.plan.schedules.schedule import Scheduler


class Folding:
    """Makes a program's schedules, from the graph as it is and from simplified ones, and takes the cheapest.

    inexact, without: see `simplify`.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        reasons: Sequence[str] = (),
        inexact: Collection[Node] = (),
        without: Collection[str] = (),
    ) -> None:
        self.graph, self.name, self.reasons, self.inexact = graph, name, reasons, inexact
        self.without = without
        self.inputs, self.outputs = inputs, outputs
        self.given = {tensor.node for tensor in inputs}

    def unfolded(self) -> Program:
        """The program of the graph as autodiff left it."""
        return Scheduler(self.name, self.inputs, self.outputs, self.reasons).program()

    def program(self) -> Program:
        """The cheapest program that was found.

        Everything is folded at first. Then each value, from the first to the last, stays as it is in the spec
        where that costs less. No schedule may become dearer for the sake of another.
        """
        candidates = self._candidates()
        barriers: set[Node] = set()
        best, folded, used = self._simplified(barriers)
        least = _total(best)
        for node in candidates:
            if node not in folded:
                continue
            attempt, changed, rewrites = self._simplified(barriers | {node})
            cost = _total(attempt)
            if cost < least:
                best, least, barriers, folded, used = attempt, cost, barriers | {node}, changed, rewrites
        plain, _, of_plain = self._simplified(candidates)
        found, limits = best.costs, plain.costs
        better = found.keys() == limits.keys() and all(found[k].elements <= limits[k].elements for k in found)
        chosen, rewrites = (best, used) if better else (plain, of_plain)
        program = replace(chosen.program(), rewrites=tuple(name for name in REWRITES if name in rewrites))
        prove(program, self.outputs)
        return program

    def _candidates(self) -> list[Node]:
        nodes = ancestors([tensor.node for tensor in self.outputs], self.given)
        return [n for n in nodes if n.op in ELEMENT_WISE and n.is_full and n not in self.given]

    def _simplified(self, barriers: Collection[Node]) -> tuple[Scheduler, Collection[Node], set[str]]:
        """The schedules of the simplified graph, and the values that are folded: another barrier changes nothing. And
        the names of the rewrites that were made.

        No kernel is made before a graph has been chosen.
        """
        nodes = [tensor.node for tensor in self.outputs]
        used: set[str] = set()
        found, folded = simplify(self.graph, nodes, self.given, self.inexact, barriers, self.without, used)
        outputs = [replace(tensor, node=found[tensor.node]) for tensor in self.outputs]
        scheduler = Scheduler(self.name, self.inputs, outputs, self.reasons)
        while scheduler.analysis.misplaced:
            outputs = regrouped(self.graph.reserved, scheduler.analysis, outputs)
            scheduler = Scheduler(self.name, self.inputs, outputs, self.reasons)
        return scheduler, folded, used


def _total(scheduler: Scheduler) -> tuple[float, int]:
    """Operations for each element, then those of coefficients."""
    costs = scheduler.costs.values()
    return sum(cost.elements for cost in costs), sum(cost.coefficients for cost in costs)
