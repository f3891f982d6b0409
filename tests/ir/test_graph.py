"""The graph: each expression once, unique names, and what verify() refuses."""

from __future__ import annotations

import pytest

from fusegen.errors import InternalError
from fusegen.ir import graph as graph_module
from fusegen.ir.axes import CHANNEL, MATRIX, ROW, SCALAR
from fusegen.ir.graph import Graph, Node, ancestors, reductions, verify
from fusegen.ir.reductions import REDUCTIONS


def test_equal_expressions_are_one_node() -> None:
    graph = Graph()
    x, b = graph.tensor("x", MATRIX), graph.tensor("b", CHANNEL)
    once = graph.add("add", x, b, name="once")
    assert graph.add("add", x, b, name="again") is once and once.name == "once"
    assert graph.tensor("x", MATRIX) is x
    assert graph.literal(2) is graph.literal(2.0)
    assert graph.literal(0) is not graph.literal(-0.0), "x + 0 and x + -0 differ where x is -0"
    assert len(graph.nodes) == 6


def test_what_makes_expressions_differ() -> None:
    graph = Graph()
    x, b = graph.tensor("x", MATRIX), graph.tensor("b", CHANNEL)
    different = [
        graph.add("add", x, b, name="t"),
        graph.add("add", b, x, name="t"),
        graph.add("sub", x, b, name="t"),
        graph.add("sum", x, axes=CHANNEL, name="t"),
        graph.add("sum", x, axes=ROW, name="t"),
        graph.add("standardize", x, b, b, attribute="one", name="t"),
        graph.add("standardize", x, b, b, attribute="two", name="t"),
    ]
    assert len(set(different)) == len(different)
    assert [node.name for node in different] == ["t", *(f"t_{i}" for i in range(2, 8))]


def test_axes_default_to_what_the_operands_broadcast_to() -> None:
    graph = Graph()
    b, s, row = graph.tensor("b", CHANNEL), graph.scalar("s"), graph.tensor("r", ROW)
    assert graph.add("mul", b, s, name="bs").axes == CHANNEL
    assert graph.add("mul", b, row, name="br").axes == MATRIX
    assert s.axes == graph.literal(1).axes == SCALAR


def test_values_give_way_to_tensors_and_constants() -> None:
    """Whichever comes first."""
    graph = Graph(frozenset({"of_spec"}))
    claimed = graph.claim("claimed")
    x = graph.tensor("x", MATRIX)
    values = [graph.add(op, x, name=name) for op, name in (("relu", "of_spec"), ("tanh", "claimed"), ("exp", "first"))]
    assert [node.name for node in values] == ["of_spec_2", "claimed_2", "first"]
    assert (
        graph.tensor("of_spec", MATRIX).name == "of_spec" and graph.tensor(claimed, MATRIX).name == claimed == "claimed"
    )
    assert [graph.claim(name) for name in ("of_spec", "claimed", "first")] == ["of_spec_3", "claimed_3", "first_2"]
    assert graph.reserved == {"of_spec", "claimed", "of_spec_3", "claimed_3", "first_2"}


def test_a_number_that_is_taken_is_passed_over() -> None:
    graph = Graph()
    taken = graph.tensor("t_2", MATRIX)
    first, second = (graph.add(op, taken, name="t") for op in ("relu", "tanh"))
    assert len({taken.name, first.name, second.name}) == 3


def test_ancestors_come_before_their_users() -> None:
    graph = Graph()
    x = graph.tensor("x", MATRIX)
    unused = graph.tensor("unused", MATRIX)
    a = graph.add("relu", x, name="a")
    b = graph.add("mul", a, x, name="b")
    assert ancestors([b]) == [x, a, b]
    assert ancestors([b], stop=[a]) == [x, a, b], "x is still an operand of b"
    assert ancestors([a], stop=[a]) == [a]
    assert unused not in ancestors([b])


def test_reductions_are_told_from_the_rest() -> None:
    graph = Graph()
    x = graph.tensor("x", MATRIX)
    total = graph.add("sum", x, axes=CHANNEL, name="total")
    moments = graph.add("moments", x, axes=ROW, name="moments")
    mean = graph.add("mean", moments, name="mean")
    assert list(reductions(graph.nodes)) == [total, moments]
    assert mean.axes == ROW and not mean.is_leaf and x.is_leaf


def test_the_graph_knows_every_reduction_by_its_name() -> None:
    """Of the graph as of the entries, which have rules that need the graph."""
    assert graph_module.REDUCTIONS == REDUCTIONS.keys()


def test_verify_accepts_a_sound_graph() -> None:
    graph = Graph()
    x, b = graph.tensor("x", MATRIX), graph.tensor("b", CHANNEL)
    total = graph.add("sum", graph.add("add", x, b, name="a"), axes=CHANNEL, name="t")
    verify([graph.add("mul", x, total, name="y")])


@pytest.mark.parametrize(
    ("op", "axes", "message"),
    [
        ("relu", CHANNEL, "should have the axes"),
        ("sum", MATRIX, "reduces"),  # nothing
        ("moments", MATRIX, "reduces"),
    ],
)
def test_verify_refuses_wrong_axes(op: str, axes, message: str) -> None:
    graph = Graph()
    bad = graph.add(op, graph.tensor("x", MATRIX), axes=axes, name="bad")
    user = graph.add("tanh", bad, name="user")
    with pytest.raises(InternalError, match=message):
        verify([user])


def test_verify_refuses_a_sum_that_grows() -> None:
    graph = Graph()
    bad = graph.add("sum", graph.tensor("b", CHANNEL), axes=ROW, name="bad")
    with pytest.raises(InternalError, match="reduces"):
        verify([bad])


def test_verify_refuses_a_use_before_the_value() -> None:
    later = Node("tensor", (), "x", MATRIX, "x", index=5)
    early = Node("relu", (later,), None, MATRIX, "early", index=1)
    with pytest.raises(InternalError, match="used before it is made"):
        verify([early])
