"""Expressions mean what the nodes do: they are evaluated as Python, whose operators bind as those of C++ do."""

from __future__ import annotations

import itertools
import math

import pytest

from fusegen.ir.axes import MATRIX
from fusegen.ir.graph import Graph, Node
from fusegen.render.programs.expressions import Expressions

VALUES = {"a": 7.0, "b": -3.0, "c": 0.5}
ZERO = 3.0
"""What Acc(0) stands for here, so that nothing is divided by zero."""
MEANING = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "negate": lambda x: -x,
    "detach": lambda x: x,
    "vanishing": lambda x: x * ZERO,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
}


def applied(graph: Graph, op: str, *operands: Node) -> Node:
    """A node that is written inside the expression that uses it."""
    count = 2 if op in ("add", "sub", "mul", "div") else 1
    return graph.add(op, *operands[:count], name=op, temporary=True)


def meaning(node: Node) -> float:
    return VALUES[node.name] if node.is_leaf else MEANING[node.op](*map(meaning, node.operands))


def text(nodes: list[Node]) -> str:
    """The last of the nodes in one line."""
    lines = Expressions(lambda node: node.name).statements(nodes, [nodes[-1]], lambda node, text: text, [nodes[-1]])
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(("outer", "inner"), [*itertools.product(MEANING, MEANING)])
@pytest.mark.parametrize("swapped", [False, True])
def test_operands_are_in_brackets_where_they_must_be(outer: str, inner: str, swapped: bool) -> None:
    graph = Graph(frozenset(VALUES))
    a, b, c = (graph.tensor(name, MATRIX) for name in VALUES)
    within = applied(graph, inner, a, b)
    node = applied(graph, outer, *((c, within) if swapped and outer in ("add", "sub", "mul", "div") else (within, c)))
    found = text([within, node])
    names = {**VALUES, "Acc": lambda zero: ZERO, "sqrt": MEANING["sqrt"]}
    assert eval(found, names) == pytest.approx(meaning(node), nan_ok=True)
    assert "--" not in found and "++" not in found  # these change their operand, in C++
