"""The values of elements that kernels cache for later passes, in registers or shared memory."""

from __future__ import annotations

from collections.abc import Set

from fusegen.ir.functions.catalogue import is_costly, is_slope
from fusegen.ir.graph import Node, ancestors
from fusegen.plan.launches.kinds import KERNELS, Stays
from fusegen.plan.programs.model import Kernel, Pass

MOST_CACHED = 32  # kernels know them by masks of so many bits


def cached_values(kernel: Kernel) -> list[list[Node]]:
    """For each pass of a row or column kernel, the values that it caches for later ones."""
    cache = _Cache(kernel)
    found = []
    for index, pass_ in enumerate(kernel.passes):
        chosen = cache.choose(index, pass_)
        cache.nodes += chosen
        found.append(chosen)
    return found


class _Cache:
    """The values, `nodes`, that the passes so far cache: row kernels in registers, others in shared memory.

    room: for how many more there is, besides the operands of moments, which row kernels always cache.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.nodes: list[Node] = []
        self.room = MOST_CACHED
        self.in_registers = KERNELS[kernel.kind].stays is Stays.REGISTERS
        if self.in_registers:
            self.room -= len({n.operands[0] for p in kernel.passes for n in p.sums if n.op == "moments"})

    def choose(self, index: int, pass_: Pass) -> list[Node]:
        """What to cache for later passes: anywhere, what a costly function made. In registers, also the operands of
        moments, which a second loop over the distances to the mean needs at once; slopes in place of what they are
        made of; and nothing that is one operation away from what is at hand."""
        if not self.in_registers:
            found = sorted(self._costly_later(index, pass_), key=lambda node: node.index)[: self.room]
            self.room -= len(found)
            return found
        of_moments = {n.operands[0] for n in pass_.sums if n.op == "moments" and n.operands[0] in pass_.values}
        at_hand = {t.node for t in self.kernel.reads}
        found = []
        for node in sorted(of_moments | self._costly_later(index, pass_, of_moments), key=lambda node: node.index):
            near = at_hand.issuperset(n for n in node.operands if n.is_full)
            worth = not near or is_costly(node) or is_slope(node)
            if node in of_moments or (worth and self.room > 0):
                found.append(node)
                at_hand.add(node)
                self.room -= node not in of_moments
        return found

    def _costly_later(self, index: int, pass_: Pass, cached: Set[Node] = frozenset()) -> set[Node]:
        """What later passes would compute again with a costly function, given what is `cached`; in registers, slopes
        that can be computed already in place of their parts."""
        at_hand = {t.node for t in self.kernel.reads}.union(pass_.values)
        later = self.kernel.passes[index + 1 :]
        stack = [t.node for p in later for t in p.stores] + [n for p in later for s in p.sums for n in s.operands]
        found: set[Node] = set()
        seen = {*cached, *self.nodes}
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            slope = self.in_registers and is_slope(node) and at_hand.issuperset(node.operands)
            if slope or (node in pass_.values and any(map(is_costly, self._computed_again([node])))):
                found.add(node)
            else:
                stack.extend(operand for operand in node.operands if operand.is_full)
        return found

    def _computed_again(self, targets: list[Node]) -> list[Node]:
        """The full-size values that `targets` need and that must be computed again, given what is cached."""
        read = {t.node for t in self.kernel.reads}
        stop = read.union(self.nodes, (node for pass_ in self.kernel.passes for node in pass_.sums))
        return [n for n in ancestors(targets, stop) if n.is_full and n not in stop]
