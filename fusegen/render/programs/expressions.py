"""Graph nodes as C++: references, expressions, and the statements that compute a list of nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from fusegen.errors import InternalError
from fusegen.ir.axes import Axes
from fusegen.ir.functions.catalogue import FUNCTIONS
from fusegen.ir.graph import Node
from fusegen.plan.programs.units import Unit, unit_of

Reference = Callable[[Node], str]

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_UNARY = 3
_ATOM = 9
_LONGEST_INLINE = 76


def literal(value: float) -> str:
    """A constant of the accumulation type."""
    if math.isinf(value):
        return "Acc(-INFINITY)" if value < 0 else "Acc(INFINITY)"
    text = repr(value)
    return f"Acc({text[:-2] if text.endswith('.0') else text})"


def inverse_length(over: Axes) -> str:
    """The scalar that is one over the number of elements of a row, or of a group of its channels."""
    return f"inverse_{unit_of(over).value}_length"


class Expressions:
    """Writes nodes as C++ expressions.

    reference: how a node that has been computed before is named here (such as `x`, or `x[v]` for a column's value).
    count: how many elements one value over some axes stands for.
    """

    def __init__(self, reference: Reference, count: Callable[[Axes], str] = str) -> None:
        self._reference = reference
        self._count = count
        self._inline: set[Node] = set()

    def statements(
        self,
        nodes: Sequence[Node],
        sinks: Iterable[Node],
        declare: Callable[[Node, str], str],
        pinned: Collection[Node] = (),
        longest: int = _LONGEST_INLINE,
    ) -> list[str]:
        """One line a node, in order; a temporary with one use is written inside that use.

        sinks: further uses of the nodes (stores, sums). pinned: nodes that must have a line of their own. longest:
        expression that may stand in another.
        """
        return [declare(node, text) for node, text in self.each(nodes, sinks, pinned, longest)]

    def each(
        self,
        nodes: Sequence[Node],
        sinks: Iterable[Node],
        pinned: Collection[Node] = (),
        longest: int = _LONGEST_INLINE,
    ) -> Iterator[tuple[Node, str]]:
        """The nodes that have a line of their own, each with its expression. Arguments are those of `lines`."""
        uses = Counter(operand for node in nodes for operand in node.operands)
        uses.update(sinks)
        for node in nodes:
            inline = node.temporary and uses[node] == 1 and node not in pinned
            if inline and len(self.expression(node)) <= longest:
                self._inline.add(node)
            else:
                self._inline.discard(node)
                yield node, self.expression(node)

    def operand(self, node: Node) -> str:
        """The node where it is used: its name, or its expression if it was left to be written here."""
        return self._operand(node)[0]

    def expression(self, node: Node) -> str:
        return self._expression(node)[0]

    def _operand(self, node: Node) -> tuple[str, int]:
        if node.op == "literal":
            return literal(node.number), _ATOM
        if node.op == "count":
            assert isinstance(node.attribute, Axes)
            return f"Acc({self._count(node.attribute)})", _ATOM
        if node in self._inline:
            return self._expression(node)
        return self._reference(node), _ATOM

    def _expression(self, node: Node) -> tuple[str, int]:
        operands = [self._operand(operand) for operand in node.operands]
        texts = [text for text, _ in operands]
        match node.op:
            case "mean":
                return f"{self._reference(node.operands[0])}.mean", _ATOM
            case "variance":
                moments = self._reference(node.operands[0])
                if unit_of(node.axes) is Unit.CHANNEL:
                    return f"{moments}.m2 / Acc(rows)", 2
                return f"{moments}.m2 * k.{inverse_length(node.axes)}", 2
        function = FUNCTIONS.get(node.op)
        if function is None:
            raise InternalError(f"{node!r} has no C++ form")
        if function.is_call:
            return f"{function.call}({', '.join(texts)})", _ATOM
        return _filled(function.cpp, operands)


def _filled(pattern: str, operands: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """The operands in a pattern such as "{} - {}", in brackets where its operator binds more tightly than theirs."""
    if pattern == "{}":
        return operands[0]
    operator = next(character for character in pattern if character in _PRECEDENCE)
    if pattern.startswith(operator):
        return pattern.format(_bracket(operands[0], _ATOM)), _UNARY  # "--x" would be a decrement
    rank = _PRECEDENCE[operator]
    ranks = (rank, rank + (operator in "-/"))
    return pattern.format(*(_bracket(*each) for each in zip(operands, ranks, strict=False))), rank


def _bracket(operand: tuple[str, int], rank: int) -> str:
    text, own = operand
    return text if own >= rank else f"({text})"
