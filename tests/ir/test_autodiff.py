"""The structure of gradients on small graphs: which sums are taken, and which are not."""

from __future__ import annotations

import pytest

from fusegen.errors import InternalError
from fusegen.ir.autodiff import differentiate
from fusegen.ir.axes import CHANNEL, MATRIX, ROW, SCALAR, Axes
from fusegen.ir.functions import normalisation
from fusegen.ir.graph import Graph, Node, ancestors, reductions, verify


class Example:
    """A graph with a full-size leaf x, a per-channel leaf b, and a gradient g that flows into a result."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.x, self.g = self.graph.tensor("x", MATRIX), self.graph.tensor("g", MATRIX)
        self.b = self.graph.tensor("b", CHANNEL)

    def apply(self, op: str, *operands: Node) -> Node:
        return self.graph.add(op, *operands, name=f"{op}_value")

    def gradients(self, result: Node, *leaves: Node) -> dict[Node, Node]:
        found = differentiate(self.graph, result, self.g, leaves)
        verify(found.values())
        assert all(gradient.axes == leaf.axes for leaf, gradient in found.items())
        return found


def sums(*gradients: Node) -> list[Node]:
    """The reductions behind some gradients."""
    return list(reductions(ancestors(gradients)))


def test_a_broadcast_operand_gets_a_sum() -> None:
    e = Example()
    found = e.gradients(e.apply("add", e.x, e.b), e.x, e.b)
    assert found[e.x] is e.g
    assert (found[e.b].op, found[e.b].operands) == ("sum", (e.g,))


def test_constant_factors_leave_the_sum() -> None:
    """y = ((x + b) s + c) w: the sums of g w s and of g w are both the sum of g."""
    e = Example()
    s, c, w = e.graph.scalar("s"), e.graph.tensor("c", CHANNEL), e.graph.tensor("w", CHANNEL)
    y = e.apply("mul", e.apply("add", e.apply("mul", e.apply("add", e.x, e.b), s), c), w)
    found = e.gradients(y, e.b, c)
    (total,) = sums(found[e.b], found[c])
    assert (total.op, total.operands, total.axes) == ("sum", (e.g,), CHANNEL)
    assert {s, w} < set(ancestors([found[e.b]])) and s not in ancestors([found[c]])


def test_a_negated_operand_shares_the_sum() -> None:
    e = Example()
    c = e.graph.tensor("c", CHANNEL)
    found = e.gradients(e.apply("sub", e.apply("add", e.x, e.b), c), e.b, c)
    assert sums(found[e.b], found[c]) == [found[e.b]]
    assert found[c].op == "mul" and e.graph.literal(-1) in found[c].operands


def test_what_varies_over_the_rows_stays_in_the_sum() -> None:
    e = Example()
    found = e.gradients(e.apply("mul", e.x, e.b), e.b)
    (product,) = found[e.b].operands
    assert found[e.b].op == "sum" and set(product.operands) == {e.g, e.x}


def test_a_scalar_is_summed_by_columns_first() -> None:
    e = Example()
    s = e.graph.tensor("s", SCALAR)
    found = e.gradients(e.apply("add", e.apply("add", e.x, e.b), s), e.b, s)
    assert found[s].op == "sum" and found[s].operands == (found[e.b],)
    assert sums(found[s]) == [found[e.b], found[s]]


def test_a_parameter_used_twice_costs_one_reduction() -> None:
    e = Example()
    y = e.apply("add", e.apply("mul", e.apply("relu", e.x), e.b), e.apply("mul", e.x, e.b))
    found = e.gradients(y, e.b)
    (total,) = sums(found[e.b])
    assert total is found[e.b] and total.operands[0].op == "add"


def test_a_value_used_twice_gets_both_parts() -> None:
    e = Example()
    found = e.gradients(e.apply("mul", e.x, e.x), e.x)
    left, right = found[e.x].operands
    assert found[e.x].op == "add" and left is right and set(left.operands) == {e.x, e.g}


def test_detach_cuts() -> None:
    e = Example()
    detached = e.apply("detach", e.apply("add", e.x, e.b))
    found = e.gradients(e.apply("mul", e.x, detached), e.x, e.b)
    assert e.b not in found, "b is reached only behind the detach"
    assert found[e.x].op == "mul" and set(found[e.x].operands) == {e.g, detached}


def test_leaves_that_do_not_matter_get_no_gradient() -> None:
    e = Example()
    other = e.graph.tensor("other", CHANNEL)
    assert set(e.gradients(e.apply("relu", e.x), e.x, other)) == {e.x}
    assert e.gradients(e.apply("relu", e.x), other) == {}


@pytest.mark.parametrize("over", [CHANNEL, ROW, Axes.of("N", C=4)], ids=str)
def test_a_centred_norm_takes_two_sums(over) -> None:
    e = Example()
    xhat, _, _ = normalisation.centred(e.graph, e.x, over, e.graph.literal(1e-5), "n")
    found = e.gradients(xhat, e.x)
    backward = [node for node in sums(found[e.x]) if node.op == "sum"]
    assert found[e.x].op == "standardize_backward"
    assert [node.axes for node in backward] == [over, over] and backward[0].operands == (e.g,)


def test_the_sum_behind_a_centred_norm_vanishes() -> None:
    """Batch norm subtracts what a bias before it adds, so no third sum is taken, and NaN still shows."""
    e = Example()
    shifted = e.apply("add", e.x, e.b)
    xhat, _, _ = normalisation.centred(e.graph, shifted, CHANNEL, e.graph.literal(1e-5), "n")
    found = e.gradients(xhat, e.x, e.b)
    kept, zero = found[e.b].operands[0], found[e.b].op == "vanishing"
    assert zero and kept.op == "sum" and xhat in kept.operands[0].operands  # NaN in g or in x
    assert sums(found[e.b], found[e.x]) == sums(found[e.x])


def test_the_sum_behind_other_norms_does_not_vanish() -> None:
    for over in (ROW, Axes.of("N", C=4)):
        e = Example()
        xhat, _, _ = normalisation.centred(e.graph, e.apply("add", e.x, e.b), over, e.graph.literal(0), "n")
        assert e.gradients(xhat, e.b)[e.b].op == "sum", "a group sums over channels, the bias over rows"
    e = Example()
    xhat = normalisation.uncentred(e.graph, e.apply("add", e.x, e.b), ROW, e.graph.literal(0), "n")
    assert e.gradients(xhat, e.b)[e.b].op == "sum"


def test_given_statistics_are_constants() -> None:
    e = Example()
    mean, variance = e.graph.tensor("mean", CHANNEL), e.graph.tensor("variance", CHANNEL)
    xhat = normalisation.with_given(e.graph, e.x, mean, variance, e.graph.literal(1e-5), "n")
    found = e.gradients(xhat, e.x, mean)
    assert set(found) == {e.x} and not sums(found[e.x])


def test_an_op_without_a_rule_is_a_bug() -> None:
    e = Example()
    with pytest.raises(InternalError, match="no gradient rule"):
        e.gradients(e.apply("vanishing", e.x), e.x)


def test_an_op_that_nobody_defined_is_a_bug() -> None:
    e = Example()
    with pytest.raises(InternalError, match="no function is called 'frobnicate'"):
        e.gradients(e.apply("frobnicate", e.x), e.x)


def test_the_gradients_of_a_value_that_is_several_results_are_added() -> None:
    e = Example()
    h = e.graph.tensor("h", MATRIX)
    total = differentiate(e.graph, e.x, e.g, [e.x], [(e.x, h)])[e.x]
    assert (total.op, total.operands) == ("add", (e.g, h))
