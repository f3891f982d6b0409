"""What the values of a program are called in its struct: fields of records, totals of sums, or local values."""

from __future__ import annotations

from fusegen.ir.axes import Axes
from fusegen.ir.graph import Node
from fusegen.ir.reductions import REDUCTIONS
from fusegen.plan.programs.passes import Passes
from fusegen.plan.programs.units import Unit, unit_of
from fusegen.render.text.identifiers import value

_COUNTS = {Unit.CHANNEL: "rows", Unit.ROW: "channels", Unit.GROUP: "group_length"}
_COUNTS |= {Unit.SAMPLE: "sample_rows", Unit.SAMPLE_GROUP: "sample_rows * group_length"}

_RECORDS = {Unit.SCALAR: "Scalars", Unit.ELEMENT: "Drawn", Unit.SAMPLE_GROUP: "Sample"}


def record(axes: Axes) -> str:
    """The record that holds values over these axes."""
    unit = unit_of(axes)
    return _RECORDS.get(unit) or unit.value.capitalize()


class Names:
    """The names of the values of one program. fields: names of fields of records, by the node that each holds; other
    values are local."""

    def __init__(self, passes: Passes) -> None:
        self.passes, self.program = passes, passes.program
        self.fields = self._fields()

    def _fields(self) -> dict[Node, str]:
        """The fields of records by the value that they hold; other values are local."""
        passes, given = self.passes, {tensor.name for tensor in self.program.inputs}
        found = {t.node: t.name for t in self.program.inputs if not t.is_full and t.role != "seed"}
        found |= {node: node.name for node in self.program.draws}
        found |= {node: node.name for node in passes.channel_numbers}
        found |= {node: node.name for node in passes.derived if self._is_field(node)}
        for tensors in passes.stored:
            for tensor in tensors:
                name = tensor.node.name if tensor.name in given else tensor.name
                found.setdefault(tensor.node, name)
        for node in sorted(passes.followed, key=lambda node: node.index):
            if self._outlives(node):
                found.setdefault(node, node.name)
        return found

    def _is_field(self, node: Node) -> bool:
        """Whether what follows from tensors alone is needed outside of where it is computed."""
        passes = self.passes
        users = [n for n in passes.derived if record(n.axes) != record(node.axes)]
        users += [*passes.followed, *(n for nodes in passes.finished for n in nodes)]
        users += [*self.program.scalar_sums]
        if any(node in n.operands for n in users):
            return True
        stored = [tensor.node for tensors in passes.stored for tensor in tensors]
        return node in stored or any(node in each.small for each in passes.passes)

    def _outlives(self, node: Node) -> bool:
        """Whether what follows from sums is needed outside of where it is computed."""
        passes, place = self.passes, self.passes.place(node)
        if any(node in needed for needed in passes.needed_by_elements):
            return True
        if any(node is tensor.node for tensors in passes.scratch for tensor in tensors):
            return True
        users = [n for n in passes.followed if node in n.operands and passes.place(n) != place]
        return bool(users) or any(node in n.operands for nodes in passes.finished for n in nodes)

    def sum_name(self, node: Node) -> str:
        """A sum that is a result as it is has the result's name."""
        outputs = [t.name for tensors in self.passes.stored for t in tensors if t.node is node]
        return value(outputs[0] if outputs else node.name)

    def reference(self, node: Node) -> str:
        if node in self.fields:
            return f"k.{value(self.fields[node])}"
        if node.is_reduction:
            return self.total(node)
        if node in self.passes.given:
            return f"x.{value(self.passes.given[node].name)}"
        return value(node.name)

    @staticmethod
    def count(over: Axes) -> str:
        """How many elements one value over these axes stands for."""
        return _COUNTS[unit_of(over)]

    def total(self, node: Node) -> str:
        """What all elements of a reduction add up to."""
        return f"total.{self.sum_name(self.holder(node))}{REDUCTIONS[node.op].value}"

    def holder(self, node: Node) -> Node:
        """The reduction whose record has the result of this one: itself, or another one of the same elements."""
        index = self.passes.place(node)
        sums = self.passes.passes[index].sums if index < len(self.passes.passes) else ()
        others = (each for each in sums if each.op == REDUCTIONS[node.op].within)
        return next((each for each in others if (each.operands, each.axes) == (node.operands, node.axes)), node)


def unit_name(unit: Unit | None) -> str:
    """C++: what there is one value each of."""
    words = ["none"] if unit is None else unit.value.split("_")
    return f"Unit::k{''.join(word.capitalize() for word in words)}"
