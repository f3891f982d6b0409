"""The dtype combinations of a chain, and the dtype of its result in each: PyTorch's."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.ops.step import promote
from fusegen.plan.modules.plan import Plan
from tests.plan.planning import LINEAR, planned

DTYPES = ("float16", "bfloat16", "float32", "float64")


def outputs(plan: Plan) -> dict[str, str]:
    return {mode.name: mode.roles["output"] for mode in plan.modes}


def test_plain_modes_then_autocast_then_verification(tmp_path) -> None:
    plan = planned(tmp_path, LINEAR, "op: relu")
    assert [mode.name for mode in plan.modes] == [
        *("float32", "bfloat16", "float16"),
        *("autocast bfloat16", "autocast float16"),
        "float64",
    ]
    assert [mode.index for mode in plan.modes] == list(range(6))
    assert [mode.autocast for mode in plan.modes] == [False, False, False, True, True, False]
    assert plan.modes[3].roles == {"activation": "bfloat16", "parameter": "float32", "output": "bfloat16"}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["op: relu"], "bfloat16"),
        (["op: batch_norm, name: bn"], "bfloat16"),
        (["op: group_norm, name: gn, num_groups: 4"], "float32"),
        (["op: layer_norm, name: ln", "op: relu"], "float32"),
        (["op: softplus"], "float32"),
        (["op: square"], "float32"),
        (["op: exp"], "float32"),
        (["op: mul, constant: 2.0"], "bfloat16"),
        (["op: mul, parameter: p, shape: [hidden], init: ones"], "float32"),
        (["op: mul, parameter: p, shape: [], init: ones"], "bfloat16"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_result_under_autocast(tmp_path, steps: list[str], expected: str) -> None:
    found = outputs(planned(tmp_path, LINEAR, *steps))
    assert found["autocast bfloat16"] == expected
    assert found["bfloat16"] == "bfloat16" and found["float32"] == "float32"


def test_a_saved_value_keeps_its_dtype(tmp_path) -> None:
    steps = (LINEAR + ", save: a", "op: softplus", "op: sigmoid", "op: mul, value: a")
    assert outputs(planned(tmp_path, *steps))["autocast float16"] == "float32"
    steps = (LINEAR + ", save: a", "op: relu", "op: mul, value: a")
    assert outputs(planned(tmp_path, *steps))["autocast float16"] == "float16"


def test_a_further_input_may_come_in_either_dtype(tmp_path) -> None:
    plan = planned(tmp_path, LINEAR, "op: add, input: z", inputs=", z: [batch, hidden]", dtypes="float32, float16")
    assert outputs(plan) == {
        "float32": "float32",
        "float16": "float16",
        "autocast float16, inputs float32": "float32",
        "autocast float16, inputs float16": "float16",
        "float64": "float64",
    }


def test_no_autocast_without_float32_parameters_or_without_a_product(tmp_path) -> None:
    assert list(outputs(planned(tmp_path, LINEAR, dtypes="bfloat16, float16"))) == [
        "bfloat16",
        "float16",
        "float64",
    ]
    plan = planned(tmp_path, "op: relu", dtypes="float32, bfloat16")
    assert list(outputs(plan)) == ["float32", "bfloat16", "float64"]


def test_promotion_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    for left in DTYPES:
        for right in DTYPES:
            expected = torch.promote_types(getattr(torch, left), getattr(torch, right))
            assert str(expected) == f"torch.{promote(left, right)}"


REST = {"inputs": ", rest: [batch, width]", "dtypes": "float32, bfloat16"}
NORM = ("op: add, input: rest", "op: layer_norm, name: n")


def test_a_spec_may_list_its_modes(tmp_path) -> None:
    listed = "{x: bfloat16, rest: float32, parameters: float32}, {x: bfloat16, rest: bfloat16}"
    plan = planned(tmp_path, *NORM, modes=listed, **REST)
    assert [mode.name for mode in plan.modes] == [
        *("bfloat16", "autocast bfloat16, inputs float32", "autocast bfloat16, inputs bfloat16"),
        "float64",
    ]
    assert [mode.index for mode in plan.modes] == list(range(4))


def test_a_mode_may_have_inputs_of_both_widths(tmp_path) -> None:
    """Which are too many for a spec that lists none."""
    given = {"inputs": ", rest: [batch, width], most: [batch, width]", "dtypes": "float32, bfloat16"}
    chain = (*NORM, "op: add, input: most")
    listed = "{x: bfloat16, rest: float32, most: bfloat16, parameters: float32}"
    plan = planned(tmp_path, *chain, modes=listed, **given)
    assert outputs(plan) == {"autocast bfloat16, rest in float32, most in bfloat16": "float32", "float64": "float64"}
    with pytest.raises(SpecError, match="no call has tensors of these dtypes"):
        planned(tmp_path, *chain, modes=listed.replace("parameters: float32", "parameters: bfloat16"), **given)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("{x: float32, parameters: bfloat16}", "no call has tensors of these dtypes"),
        ("{x: float16}", "no call has tensors of these dtypes"),
        ("{x: float32}, {y: float32}", "'y' has no dtype that a mode may say"),
        ("{x: float32}, {x: float32}", "listed twice"),
        ("{x: half}", "unsupported dtype 'half'"),
    ],
)
def test_modes_that_no_call_has_are_refused(tmp_path, listed: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        planned(tmp_path, *NORM, modes=listed, **REST)


def test_regions_have_all_modes(tmp_path) -> None:
    layers = (LINEAR, "op: linear, name: down, out_features: width")
    with pytest.raises(SpecError, match="several regions has kernels for all modes"):
        planned(tmp_path, *layers, modes="{x: float32}")
