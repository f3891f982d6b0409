"""The rules of simplification on small graphs."""

from __future__ import annotations

import pytest

from fusegen.ir.axes import CHANNEL, MATRIX, ROW, Axes
from fusegen.ir.graph import Graph, Node, ancestors, reductions
from fusegen.ir.simplify import simplify


class Example:
    """A graph with a full-size leaf x, which has been rounded, and coefficients of each column."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.x, self.exact = self.graph.tensor("x", MATRIX), self.graph.tensor("exact", MATRIX)
        self.a, self.b, self.c = (self.graph.tensor(name, CHANNEL) for name in "abc")

    def apply(self, op: str, *operands: Node, axes=None, name: str = "") -> Node:
        return self.graph.add(op, *operands, axes=axes, name=name or f"{op}_value")

    def simplified(self, *sinks: Node, barriers=()) -> list[Node]:
        found, _ = simplify(self.graph, sinks, (), {self.x}, barriers)
        return [found[sink] for sink in sinks]


def text(node: Node) -> str:
    """The expression of a node over leaves."""
    if node.is_leaf:
        return str(node.attribute)
    return f"{node.op}({', '.join(text(operand) for operand in node.operands)})"


def full(node: Node) -> list[Node]:
    return [n for n in ancestors([node]) if n.is_full and not n.is_leaf]


def test_a_chain_is_one_multiply_add() -> None:
    e = Example()
    y = e.apply("sub", e.apply("mul", e.apply("add", e.apply("mul", e.x, e.a), e.b), e.c), e.a)
    (found,) = e.simplified(y)
    assert text(found) == "add(mul(x, mul(a, c)), sub(mul(b, c), a))" and len(full(found)) == 2


def test_signs_cost_nothing() -> None:
    e = Example()
    assert text(e.simplified(e.apply("sub", e.b, e.x))[0]) == "sub(b, x)"
    assert text(e.simplified(e.apply("negate", e.apply("negate", e.x)))[0]) == "x"
    assert text(e.simplified(e.apply("sub", e.b, e.apply("sub", e.c, e.x)))[0]) == "add(x, sub(b, c))"
    assert text(e.simplified(e.apply("sub", e.apply("sub", e.x, e.b), e.c))[0]) == "sub(sub(x, b), c)"
    assert text(e.simplified(e.apply("negate", e.apply("mul", e.x, e.b)))[0]) == "mul(x, mul(b, -1.0))"


def test_biases_are_added_one_by_one() -> None:
    """As eager adds them: before a kink the last bit decides."""
    e = Example()
    rounded, exact = (e.apply("add", e.apply("add", leaf, e.b), e.c) for leaf in (e.x, e.exact))
    assert [text(found) for found in e.simplified(rounded, exact)] == ["add(add(x, b), c)", "add(add(exact, b), c)"]


def test_coefficients_of_rows_and_of_columns_do_not_meet() -> None:
    """Their product is as large as the value."""
    e = Example()
    r = e.graph.tensor("r", ROW)
    (found,) = e.simplified(e.apply("mul", e.apply("mul", e.x, r), e.a))
    assert text(found) == "mul(mul(x, r), a)"


def test_nothing_is_folded_across_a_barrier() -> None:
    e = Example()
    value = e.apply("mul", e.x, e.a, name="kept_value")
    (found,) = e.simplified(e.apply("mul", value, e.b), barriers=[value])
    assert text(found) == "mul(mul(x, a), b)" and found.operands[0].name == "kept_value"


def test_literals_are_one_number_unless_it_leaves_the_range() -> None:
    e = Example()
    twice = e.apply("mul", e.apply("mul", e.x, e.graph.literal(3)), e.graph.literal(0.5))
    assert text(e.simplified(twice)[0]) == "mul(x, 1.5)"
    tiny = e.apply("mul", e.apply("mul", e.x, e.graph.literal(1e-200)), e.graph.literal(1e-200))
    assert text(e.simplified(tiny)[0]) == "mul(mul(x, 1e-200), 1e-200)"


def test_moments_are_those_of_what_is_shifted() -> None:
    e = Example()
    value = e.apply("mul", e.apply("add", e.x, e.b), e.a)
    moments = e.apply("moments", value, axes=CHANNEL)
    mean, variance = (e.apply(op, moments) for op in ("mean", "variance"))
    found = e.simplified(mean, variance)
    assert {text(node.operands[0]) for node in reductions(ancestors(found))} == {"mul(x, a)"}
    assert text(found[0]) == "add(mean(moments(mul(x, a))), mul(b, a))"
    variance = "variance(moments(mul(x, a)))"
    assert text(found[1]) == f"add({variance}, vanishing({text(found[0])}))", "a NaN of a or b stays visible"


@pytest.mark.parametrize("over", [ROW, Axes.of("N", C=4)], ids=str)
def test_moments_along_a_row_keep_what_differs_in_it(over) -> None:
    e = Example()
    moments = e.apply("moments", e.apply("add", e.x, e.b), axes=over)
    (found,) = e.simplified(e.apply("mean", moments))
    assert text(found) == "mean(moments(add(x, b)))"


def test_factors_leave_a_sum_over_what_they_do_not_vary_over() -> None:
    e = Example()
    value = e.apply("mul", e.apply("tanh", e.x), e.a)
    columns, rows = e.simplified(*(e.apply("sum", value, axes=axes) for axes in (CHANNEL, ROW)))
    assert text(columns) == "mul(sum(tanh(x)), a)" and text(rows) == "sum(mul(tanh(x), a))"


def test_what_lies_in_memory_is_no_product() -> None:
    """Its factors may be of the forward program, which the backward pass would compute once more."""
    e = Example()
    total = e.apply("sum", e.x, axes=ROW)
    scale = e.apply("mul", total, e.graph.literal(0.5))
    product = e.apply("mul", e.exact, scale)
    found, _ = simplify(e.graph, [product], {scale}, {e.x})
    assert set(ancestors([found[product]], {scale})) == {e.exact, scale, found[product]}


def test_a_division_by_a_tensor_stays() -> None:
    """1 / b may be infinite where x / b is not."""
    e = Example()
    (found,) = e.simplified(e.apply("mul", e.apply("div", e.x, e.b), e.a))
    assert text(found) == "mul(div(x, b), a)"


def test_the_graph_is_left_as_it_is() -> None:
    e = Example()
    y = e.apply("mul", e.apply("add", e.x, e.b), e.a)
    before = list(e.graph.nodes)
    (found,) = e.simplified(y)
    assert e.graph.nodes == before and e.x in ancestors([found]) and text(y) == "mul(add(x, b), a)"
