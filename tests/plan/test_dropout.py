"""Plans of chains with dropout: variants, kernels, what they move, and what is refused."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.explain.eager import operators
from fusegen.plan.modules.dimensions import dimensions
from fusegen.plan.programs.epilogue import why_after_product
from fusegen.plan.programs.model import draw_of
from tests.plan.planning import planned

PARAMETER = "op: add, parameter: bias, shape: [width], init: zeros"
SHARE = ", p: {type: float, default: 0.25}"


def kinds(program) -> list[str]:
    return [schedule.kind for schedule in program.schedules]


def test_each_dropout_draws_numbers_of_its_own(tmp_path) -> None:
    plan = planned(tmp_path, "op: dropout, name: a, p: p", "op: relu", "op: drop_path, name: b", arguments=SHARE)
    train, evaluation = plan.variants
    assert (train.name, evaluation.name) == ("train", "eval")
    for program in (train.forward, train.backward):
        assert [(draw_of(node).p, draw_of(node).stream) for node in program.draws] == [("a_p", 0), ("b_p", 1)]
        assert {"a_p", "b_p"} <= set(program.constants)
    assert [tensor.name for tensor in evaluation.forward.inputs] == ["x"]
    assert not evaluation.forward.constants


def test_a_spec_may_have_the_seeds_name(tmp_path) -> None:
    plan = planned(tmp_path, "op: dropout", "op: add, input: seed", inputs=", seed: [batch, width]")
    names = {tensor.name: tensor.role for tensor in plan.variants[0].forward.inputs}
    assert names["seed"] == "input seed" and "seed" in names.values()


def test_only_elements_are_drawn_between_passes_over_columns(tmp_path) -> None:
    """The L2-resident kernel has no values of rows."""
    norm = "op: batch_norm, name: norm"
    elements = planned(tmp_path, "op: dropout", norm)
    assert "l2" in kinds(elements.variants[0].forward)
    samples = planned(tmp_path, "op: drop_path", norm)
    assert "l2" not in kinds(samples.variants[0].forward)


def test_what_eager_pytorch_moves(tmp_path) -> None:
    """A byte for each element, written forward and read backward; nothing in evaluation, and none of samples."""
    plan = planned(tmp_path, "op: relu", "op: dropout", "op: drop_path", "op: tanh")
    train, evaluation = (operators(plan, variant) for variant in plan.variants)
    forward, backward = train[1]
    assert [tensor.role for tensor in forward.writes] == ["activation", "mask"]
    assert sorted(tensor.role for tensor in backward.reads) == ["activation", "mask"]
    forward, backward = train[2]
    assert all(tensor.role == "activation" for tensor in (*forward.writes, *forward.reads, *backward.reads))
    for forward, backward in evaluation[1:3]:
        assert not (forward.reads or forward.writes or backward.reads or backward.writes)


def test_dimensions(tmp_path) -> None:
    assert dimensions(planned(tmp_path, "op: dropout")).least == 1
    assert dimensions(planned(tmp_path, "op: drop_path")).least == 2


def test_split_products_come_before_dropout(tmp_path) -> None:
    linear = "op: linear, name: fc, out_features: hidden, precision: fp32_split"
    plan = planned(tmp_path, linear, "op: dropout")
    train, evaluation = plan.variants
    assert "four neighbours" in why_after_product(train.forward)
    assert not plan.in_epilogue(train.forward) and plan.in_epilogue(evaluation.forward)
    assert any("runs after the product: dropout" in reason for reason in train.forward.reasons)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["op: dropout, p: 1.5"], "1.5"),
        (["op: dropout, p: -0.1"], "-0.1"),
        (["op: drop_path, p: true"], "p"),
        (["op: dropout, p: rate"], "no argument named 'rate'"),
        (["op: dropout, p: width"], "'width'"),
        (["op: dropout", "op: dropout"], "two steps would own the attribute 'dropout'"),
        (["op: sum, keepdim: false", "op: dropout"], "the running value is [rows]"),
        (["op: dropout3d"], "the only random numbers are those of dropout and drop_path"),
    ],
)
def test_refusals(steps, message: str, tmp_path) -> None:
    with pytest.raises(SpecError) as caught:
        planned(tmp_path, *steps, PARAMETER)
    assert message in str(caught.value)
