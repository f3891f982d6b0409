"""Names that would mean two things in the generated code: refused, or kept apart, before any is written."""

from __future__ import annotations

import re

import pytest

from fusegen.errors import SpecError
from fusegen.render.module import render_module
from tests.plan.planning import LINEAR, planned

_HIDDEN = ", {}: [batch, hidden]"


def reference(plan) -> list[str]:
    """The body of the module's eager chain."""
    text = render_module(plan, "").split("own operators.\"\"\"\n")[1].split("\n\n")[0]
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize("name", ["self", "torch", "rows", "dtype_mode", "reference"])
def test_names_of_the_generated_code(tmp_path, name: str) -> None:
    with pytest.raises(SpecError, match="FG206"):
        planned(tmp_path, LINEAR, f"op: add, parameter: {name}, shape: [hidden], init: zeros")


@pytest.mark.parametrize("name", ["forward", "training", "reference"])
@pytest.mark.parametrize("step", ["op: linear, name: {}, out_features: hidden", "op: batch_norm, name: {}"])
def test_attributes_of_every_module(tmp_path, name: str, step: str) -> None:
    """`self.forward = nn.Linear(...)` would hide the module's own method."""
    with pytest.raises(SpecError, match="FG20[67]"):
        planned(tmp_path, step.format(name))


@pytest.mark.parametrize("name", ["F", "x"])
def test_saved_values_called_like_something_else(tmp_path, name: str) -> None:
    with pytest.raises(SpecError, match="FG20[68]"):
        planned(tmp_path, f"{LINEAR}, save: {name}", "op: relu", f"op: add, value: {name}")


@pytest.mark.parametrize("name", ["v", "value", "y_value"])
def test_saved_values_beside_the_running_value(tmp_path, name: str) -> None:
    plan = planned(tmp_path, f"{LINEAR}, save: {name}", "op: relu", f"op: add, value: {name}")
    first, second, third, last = reference(plan)
    running = last.removeprefix("return ")
    assert running != name
    assert [first, second] == [f"{name} = self.gemm(x)", f"{running} = F.relu({name})"]
    assert third == f"{running} = {running} + {name}"


def test_an_input_beside_the_running_value(tmp_path) -> None:
    plan = planned(tmp_path, LINEAR, "op: relu", "op: add, input: v", inputs=_HIDDEN.format("v"))
    assert not [line for line in reference(plan) if re.match(r"v\b", line)]
    with pytest.raises(SpecError, match="FG206"):
        planned(tmp_path, LINEAR, "op: relu", "op: add, input: F", inputs=_HIDDEN.format("F"))


def test_a_parameter_beside_an_input(tmp_path) -> None:
    """One leaf of the graph would stand for two tensors."""
    with pytest.raises(SpecError, match="FG305"):
        planned(tmp_path, "op: relu", "op: add, parameter: x, shape: [width], init: randn")


@pytest.mark.parametrize(
    ("code", "steps"),
    [
        ("FG209", ["op: linear, name: gemm, out_features: hiden", "op: relu"]),
        ("FG305", [LINEAR, "op: layer_norm, name: gemm"]),
    ],
    ids=["unknown symbol", "one name twice"],
)
def test_a_mistake_in_the_first_step(tmp_path, code: str, steps: list[str]) -> None:
    """The steps behind it have no running value, which must not end in a traceback."""
    with pytest.raises(SpecError, match=code):
        planned(tmp_path, *steps)


def test_a_linear_layer_over_a_tensor_of_three_dimensions(tmp_path) -> None:
    with pytest.raises(SpecError, match="FG303"):
        planned(tmp_path, LINEAR, shape="[batch, hidden, width]")
