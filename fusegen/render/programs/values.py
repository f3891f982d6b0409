"""The values of a program as C++: their names, and the statements of those that are not of full size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusegen.ir.graph import Node
from fusegen.plan.programs.model import Program, Tensor
from fusegen.plan.programs.passes import Passes
from fusegen.render.programs.expressions import Expressions
from fusegen.render.programs.names import Names
from fusegen.render.programs.types import pointer
from fusegen.render.text.identifiers import value

# Temporaries of gradients have long names and say little: what becomes of a sum is one formula where it can be.
_LONGEST_SMALL = 200
_VANISHING = "// Times zero: NaN and infinity stay visible, as in a sum over the elements."


class Values:
    """Prints the values of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.passes = Passes(program)
        self.names = Names(self.passes)
        self.fields = self.names.fields
        self.expressions = Expressions(self.names.reference, self.names.count)
        self.cached = sorted(
            {n for by_pass in self.passes.cached.values() for nodes in by_pass for n in nodes}, key=lambda n: n.index
        )

    def assign(self, node: Node, text: str) -> str:
        """Sets a field, or declares a local value."""
        return f"{self.names.reference(node)} = {text};" if node in self.fields else constant(node, text)

    def small(self, nodes: Sequence[Node], sinks: Iterable[Node]) -> list[str]:
        """Statements of values that are not of full size."""
        pinned = [node for node in nodes if node in self.fields]
        lines = self.expressions.statements(nodes, sinks, self.assign, pinned, longest=_LONGEST_SMALL)
        return [each for line in lines for each in ([_VANISHING, line] if "* Acc(0)" in line else [line])]

    def present(self, tensor: Tensor) -> str:
        """C++: whether a tensor is in memory, which one that may be null need not be."""
        conditions = [f"{self.momentum(tensor)} < 0"] if tensor.role == "count" else []
        conditions += [f"{pointer(tensor)} != nullptr"] if tensor.optional else []
        conditions += ["kAddsBias<T>"] if tensor.in_product else []
        return " && ".join(conditions) or "true"

    def momentum(self, count: Tensor) -> str:
        """The momentum of the running statistics that a count belongs to."""
        uses = (node.operands for node in self.passes.small if node.op == "average_factor")
        return next(value(momentum.name) for momentum, batches in uses if batches is count.node)

    def is_total(self, tensor: Tensor, made: int) -> bool:
        """Whether the channels' own pass reads it, whatever kernels ran before."""
        return bool(self.passes.uses(tensor, made) >> len(self.passes.passes))


def constant(node: Node, text: str) -> str:
    return f"const Acc {value(node.name)} = {text};"
