"""The passes of a program as C++: what an element is, what is summed, what follows from the sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusegen.ir.graph import Node, ancestors
from fusegen.ir.reductions import REDUCTIONS
from fusegen.plan.programs.model import Tensor
from fusegen.plan.programs.units import Unit
from fusegen.render.programs.names import record, unit_name
from fusegen.render.programs.program_text import PassText, Stored, macro, mask
from fusegen.render.programs.types import pointer
from fusegen.render.programs.values import Values, constant
from fusegen.render.text.identifiers import value


class PassRenderer:
    """Prints the passes of one program."""

    def __init__(self, values: Values) -> None:
        self.values, self.program, self.passes = values, values.program, values.passes
        self.names, self.fields = values.names, values.fields
        self.expressions, self.cached = values.expressions, values.cached
        # Each value of full size is printed once, whichever passes use it: what is used once may stand in its use.
        self._elements = self._element_lines()

    def texts(self) -> list[PassText]:
        """The passes over the elements, in order."""
        return [self._pass(index) for index in range(len(self.passes.passes))]

    def channels(self) -> PassText:
        """The pass over the channels, which reduces them to scalars."""
        return PassText(
            unit=unit_name(Unit.SCALAR),
            read_by="0",
            **self._summed(len(self.passes.passes), self.program.scalar_sums),
            level=[],
            results=[],
            **self._after_sums(len(self.passes.passes)),
            cached={},
        )

    def _element_lines(self) -> list[list[str]]:
        passes = self.passes
        values = sorted({n for each in passes.passes for n in each.values}, key=lambda n: n.index)
        sinks = [target for each in passes.passes for target in each.targets]
        lines: list[list[str]] = [[] for _ in passes.passes]

        def declare(node: Node, text: str) -> list[str]:
            if node not in self.cached:
                return [constant(node, text)]
            cached = f"cached.{value(node.name)}"
            either = f"has_bit(kCached, InCache::{value(node.name)}) ? {cached} : {text}"
            return [constant(node, either), f"{cached} = {value(node.name)};"]

        for node, text in self.expressions.each(values, sinks, self.cached):
            lines[passes.level[node]] += declare(node, text)
        return lines

    def _pass(self, index: int) -> PassText:
        passes, each = self.passes, self.passes.passes[index]
        operand = self.expressions.operand
        names = [value(node.name) for node in self.cached]
        cached = {
            stays: mask("InCache", names, [value(node.name) for node in by_pass[index]])
            for stays, by_pass in passes.cached.items()
        }
        return PassText(
            unit=unit_name(each.unit),
            read_by=mask("Read", [value(t.name) for t in passes.reads], [value(t.name) for t in each.reads]),
            **self._summed(index, each.sums),
            level=self._elements[index],
            results=[f"y.{value(t.name)} = {operand(t.node)};" for t in each.stores],
            **self._after_sums(index),
            cached=cached,
        )

    def _summed(self, index: int, sums: Sequence[Node]) -> dict[str, Any]:
        """What is said of the sums of a pass."""
        names = {node: self.names.sum_name(node) for node in sums if self.names.holder(node) is node}
        fields = [f"({name}, {REDUCTIONS[node.op].cpp})" for node, name in names.items()]
        return dict(
            sums=macro(f"FUSEGEN_SUMS(Sums{index}, ", fields),
            terms=[f"term.{name} = {self.expressions.operand(node.operands[0])};" for node, name in names.items()],
        )

    def _after_sums(self, index: int) -> dict[str, Any]:
        passes = self.passes
        followed = passes.followed_with(index)
        finished = passes.finished[index] if index < len(passes.finished) else []
        results = passes.stored[index]
        stores = [t.node for t in results]
        follow = [self._taken(node) for node in followed if node.is_reduction]
        sinks = [*stores, *(operand for node in finished for operand in node.operands)]
        follow += self.values.small([node for node in followed if not node.is_reduction], sinks)
        finish = self.values.small(finished, stores)
        stored, taken, taken_early = list[Stored](), list[str](), list[str]()
        for tensor in results:
            field = value(self.fields[tensor.node])
            if tensor.node not in (*finished, *passes.followed, *passes.derived, *passes.given):
                early = any(tensor.node in node.operands for node in followed)
                (taken_early if early else taken).append(self._taken(tensor.node))
            stored.append(Stored(pointer(tensor), f"&{record(tensor.axes)}::{field}"))
        scratch: list[Stored] = []
        for t in passes.scratch[index]:
            where = stored if self.values.is_total(t, index) else scratch
            where.append(Stored(pointer(t), f"&{record(t.axes)}::{value(self.fields[t.node])}"))
        return dict(
            follow=[*dict.fromkeys(taken_early), *follow],
            finish=[*dict.fromkeys(taken), *finish],
            stored=stored,
            scratch=scratch,
            counts=self._counts(index),
        )

    def _taken(self, node: Node) -> str:
        """Sets the field of what is a sum as it is."""
        return f"k.{value(self.fields[node])} = {self.names.total(node)};"

    def _counts(self, index: int) -> list[Stored]:
        """The counts of batches of running statistics that a pass moves; the field is their momentum."""
        passes = self.passes
        found = []
        for tensor in self.program.outputs:
            moved = [t for t in passes.stored[index] if t.role == "parameter" and not t.gradient_of]
            if tensor.role == "count" and moved and self._belongs(tensor, moved):
                found.append(Stored(pointer(tensor), self.values.momentum(tensor)))
        return found

    def _belongs(self, count: Tensor, moved: Sequence[Tensor]) -> bool:
        return count.node in ancestors(t.node for t in moved)
