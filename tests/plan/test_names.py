"""Names that would mean two things in the generated code: refused before any is written.

A strict xfail is a refusal that is still missing: such a spec renders code that is wrong or does not run.
"""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from tests.plan.planning import LINEAR, planned

_GAP = pytest.mark.xfail(raises=(AttributeError, pytest.fail.Exception), strict=True, reason="not refused yet")
_HIDDEN = ", {}: [batch, hidden]"


@pytest.mark.parametrize("name", ["self", "torch", "rows", "dtype_mode"])
def test_names_of_the_generated_code(tmp_path, name: str) -> None:
    with pytest.raises(SpecError, match="FG206"):
        planned(tmp_path, LINEAR, f"op: add, parameter: {name}, shape: [hidden], init: zeros")


@pytest.mark.parametrize("name", ["forward", "training", "reference"])
@pytest.mark.parametrize("step", ["op: linear, name: {}, out_features: hidden", "op: batch_norm, name: {}"])
@_GAP
def test_attributes_of_every_module(tmp_path, name: str, step: str) -> None:
    """`self.forward = nn.Linear(...)` would hide the module's own method."""
    with pytest.raises(SpecError):
        planned(tmp_path, step.format(name))


@pytest.mark.parametrize("name", ["v", "F", "x"])
@_GAP
def test_saved_values_beside_locals_and_inputs(tmp_path, name: str) -> None:
    """In the eager chain the running value is `v`, and an input is a local of its own name."""
    with pytest.raises(SpecError):
        planned(tmp_path, f"{LINEAR}, save: {name}", "op: relu", f"op: add, value: {name}")


@pytest.mark.parametrize("name", ["v", "F"])
@_GAP
def test_inputs_beside_locals(tmp_path, name: str) -> None:
    with pytest.raises(SpecError):
        planned(tmp_path, LINEAR, "op: relu", f"op: add, input: {name}", inputs=_HIDDEN.format(name))


@_GAP
def test_a_parameter_beside_an_input(tmp_path) -> None:
    """One leaf of the graph for two tensors."""
    with pytest.raises(SpecError):
        planned(tmp_path, "op: relu", "op: add, parameter: x, shape: [batch, width], init: randn")


@pytest.mark.parametrize(
    "steps",
    [["op: linear, name: gemm, out_features: hiden", "op: relu"], [LINEAR, "op: layer_norm, name: gemm"]],
    ids=["unknown symbol", "one name twice"],
)
@_GAP
def test_a_mistake_in_the_first_step(tmp_path, steps: list[str]) -> None:
    """The steps behind it have no running value, which must not end in a traceback."""
    with pytest.raises(SpecError):
        planned(tmp_path, *steps)


@_GAP
def test_a_linear_layer_over_a_tensor_of_three_dimensions(tmp_path) -> None:
    with pytest.raises(SpecError):
        planned(tmp_path, LINEAR, shape="[batch, hidden, width]")
