"""How many instructions of arithmetic an element costs, over all passes of a schedule.

An addition whose operand is a product that nothing else uses is one fused multiply-add. Sums add their operand;
moments update sums around a shift (`add_value`), or sum values and then distances, where they stay in registers.
A function says in its entry what it costs.

Planning tries many graphs for one program, so no kernel is built for this. A bit stands for each pass and for each
kernel, and a node has the bits of those that compute it: one walk over the graph counts all passes at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fusegen.ir.functions.catalogue import known_of
from fusegen.ir.graph import Node
from fusegen.plan.launches.kinds import KERNELS, Stays
from fusegen.plan.programs.model import Program
from fusegen.plan.programs.units import Unit, unit_of
from fusegen.plan.schedules.kernel import KernelSpec

_SHIFTED_SUMS, _SUM_AND_DISTANCES = 3, 4
_DRAW = 25  # ten rounds of Philox for four neighbours, and what is made of its words
_PER_VECTOR = 0.25  # of what is computed once for the neighbouring columns of a thread, four in float32


@dataclass(frozen=True)
class Cost:
    """elements: operations for each element. coefficients: values outside the loops over elements."""

    elements: float
    coefficients: int


def program_operations(program: Program) -> dict[str, float]:
    """Operations per element of each schedule, but the L2-resident one: they are those of the two-pass one."""
    return {schedule.kind: schedule.operations for schedule in program.schedules if schedule.kind != "l2"}


def schedule_cost(specs: Sequence[KernelSpec], nodes: Sequence[Node], given: Collection[Node]) -> Cost:
    """The cost of kernels that run one after the other. nodes: of the program, in order. given: those in memory."""
    return _Counting(specs, nodes, given).cost()


class _Counting:
    """Masks of bits: one bit for each pass over the elements, one for each kernel.

    needed: the passes and kernels that need a node. once, twice: passes in which it is used at least so often.
    border: those for which it is at hand. loops: bits of passes that compute small values for each element, by
    whether only the kernels of full rows do.
    """

    def __init__(self, specs: Sequence[KernelSpec], nodes: Sequence[Node], given: Collection[Node]) -> None:
        self.nodes, self.given = nodes, given
        self.needed: dict[Node, int] = defaultdict(int)
        self.once: dict[Node, int] = defaultdict(int)
        self.twice: dict[Node, int] = defaultdict(int)
        self.border: dict[Node, int] = defaultdict(int)
        self.own: dict[Node, int] = defaultdict(int)
        self.kernels = self.pointwise = self.columns = self.loops = self.row_loops = 0
        self.column_passes = 0
        self.elements = 0.0
        self.plain: list[tuple[Node, int]] = []
        bits = sum(len(spec.passes) + 1 for spec in specs)
        self._from = 0
        for spec in specs:
            self._count(spec, (1 << bits) - 1)

    def _count(self, spec: KernelSpec, every: int) -> None:
        """Gives a kernel its bits, and notes what its passes need and what later kernels find in memory."""
        kernel = 1 << self._from
        self.kernels |= kernel
        passes = [kernel << 1 + index for index in range(len(spec.passes))]
        self._from += 1 + len(passes)
        own = kernel | sum(passes)
        for node in (*spec.finished, *(n for pass_ in spec.passes for n in pass_.sums)):
            self.own[node] |= own
            self.border[node] |= own
        for bit, pass_ in zip(passes, spec.passes, strict=True):
            self._count_sums(spec, pass_.sums, bit)
            for node in [*(t.node for t in pass_.stores), *(n for s in pass_.sums for n in s.operands)]:
                self.needed[node] |= kernel
                self._use(node, bit)
            if KERNELS[spec.kind].stays is Stays.REGISTERS:
                for node in pass_.sums:
                    if node.op == "moments":  # stays in registers for the passes that follow
                        self.border[node.operands[0]] |= own & -(bit << 1)
        for tensor in spec.vector_stores:
            self.needed[tensor.node] |= kernel
            if tensor.role == "accumulator":
                self.border[tensor.node] |= every & -(1 << self._from)
        kind = KERNELS[spec.kind]
        if kind.along_rows:
            self.loops |= sum(passes)
            self.row_loops |= sum(passes) if spec.groups == 1 else 0
        elif kind.stays is Stays.SHARED:
            self.columns, self.column_passes = kernel, len(passes)
        elif kind.of_elements:
            self.pointwise |= kernel

    def _count_sums(self, spec: KernelSpec, sums: Sequence[Node], bit: int) -> None:
        moments = sum(node.op == "moments" for node in sums)
        in_registers = KERNELS[spec.kind].stays is Stays.REGISTERS
        self.elements += moments * (_SUM_AND_DISTANCES if in_registers else _SHIFTED_SUMS)
        for node in sums:
            if node.op == "sum":
                self.elements += 1
                self.plain.append((node.operands[0], bit))

    def _use(self, node: Node, bits: int) -> None:
        self.needed[node] |= bits
        self.twice[node] |= self.once[node] & bits
        self.once[node] |= bits

    def cost(self) -> Cost:
        depends = self._dependences()
        single: dict[Node, int] = {}
        sums: list[tuple[Node, int]] = []
        elements, coefficients = self.elements, 0
        for node in reversed(self.nodes):
            needed = self.needed[node]
            if node.op == "draw" and node.is_full:
                elements += _DRAW * (needed & ~self.kernels).bit_count()
            if not needed or node.is_leaf or node in self.given:
                continue
            computed = needed & ~self.border[node]
            if not node.is_full:
                # Outside the loops, unless threads that stay in a row meet another value for each element.
                kernels = computed & self.kernels
                coefficients += kernels.bit_count()
                if unit_of(node.axes) in (Unit.ROW, Unit.GROUP):
                    setup = kernels & ~depends[node]
                    elements += _PER_VECTOR * (setup & self.pointwise).bit_count()
                    elements += _PER_VECTOR * self.column_passes * bool(setup & self.columns)
                computed = kernels | computed & self._loops(node) & ~depends[node]
            for operand in node.operands:
                self.needed[operand] |= computed & self.kernels
                self._use(operand, computed & ~self.kernels)
            computed &= ~self.kernels
            if computed:
                elements += known_of(node).operations * computed.bit_count()
            if computed and known_of(node).is_product:
                single[node] = computed & self.once[node] & ~self.twice[node]
            elif node.op in ("add", "sub"):
                sums.append((node, computed))
        for node, computed in sums:
            fused = 0
            for operand in node.operands:
                fused |= single.get(operand, 0)
            elements -= (computed & fused).bit_count()
        elements -= sum(bool(single.get(node, 0) & bit) for node, bit in self.plain)
        return Cost(elements, coefficients)

    def _loops(self, node: Node) -> int:
        """The passes that compute a small value for each element."""
        match unit_of(node.axes):
            case Unit.CHANNEL:
                return self.loops
            case Unit.GROUP:
                return self.row_loops
        return 0

    def _dependences(self) -> dict[Node, int]:
        """The kernels, with their passes, whose own sums a small value follows from."""
        found: dict[Node, int] = {}
        for node in self.nodes:
            sums = 0
            for operand in node.operands if node not in self.given else ():
                sums |= found[operand]
            found[node] = sums & ~self.border[node] | self.own[node]
        return found
