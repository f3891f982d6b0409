"""What the backward pass takes from the forward pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plan.planning import LINEAR, planned

AMAX, LESS = "op: amax, keepdim: true", "op: sub, value: v, swap: true"


def saved(directory: Path, *steps: str) -> dict[str, str]:
    """The role of what is saved, by its name."""
    (variant,) = planned(directory, *steps).variants
    return {tensor.name: tensor.role for tensor in variant.saved}


@pytest.mark.parametrize("op", ["max", "min"])
def test_one_number_a_row_says_where_the_gradient_of_the_largest_goes(op: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, LINEAR, "op: silu, save: v", f"op: {op}, keepdim: true", LESS)
    (tensor,) = plan.variants[0].saved
    assert tensor.name.endswith("_channel") and str(tensor.axes) == "[N]"


def test_what_is_compared_is_stored(tmp_path: Path) -> None:
    """In the dtype that eager PyTorch has it in. Under autocast layer_norm's result is float32, as the chain's is,
    unless that comes from prelu, whose result has 16 bits."""
    assert saved(tmp_path, LINEAR, "op: silu, save: v", AMAX, LESS) == {"silu_value": "activation"}
    norm = "op: layer_norm, name: n, save: v"
    assert saved(tmp_path, LINEAR, norm, AMAX, LESS)["n"] == "output"
    assert saved(tmp_path, LINEAR, norm, AMAX, LESS, "op: prelu, name: p")["n"] == "accumulator"


@pytest.mark.parametrize("op", ["amax", "amin"])
def test_an_input_is_compared_where_it_lies(op: str, tmp_path: Path) -> None:
    assert saved(tmp_path, f"op: {op}, keepdim: true", "op: sub, input: x") == {}


@pytest.mark.parametrize(
    ("steps", "read"),
    [
        ((LINEAR, "op: relu"), {"grad_y", "y"}),
        (("op: add, input: rest", "op: relu"), {"grad_y", "y"}),
        (("op: layer_norm, name: n", "op: add, input: rest", "op: relu"), {"grad_y", "x", "y"}),
        (("op: layer_norm, name: n", "op: relu"), {"grad_y", "x"}),  # which it reads for the norm in any case
        (("op: silu", "op: relu"), {"grad_y", "x"}),
        ((LINEAR, "op: relu", "op: mul, constant: 2.0"), {"grad_y", "gemm_product"}),  # in memory is another value
    ],
)
def test_a_result_is_read_for_its_sign(steps: tuple[str, ...], read: set[str], tmp_path: Path) -> None:
    """In place of what the result is made of: what takes the result keeps it in any case."""
    rest = ", rest: [batch, width]" if any("rest" in step for step in steps) else ""
    (variant,) = planned(tmp_path, *steps, inputs=rest).variants
    assert {tensor.name for tensor in variant.backward.inputs if tensor.is_full} == read


def test_the_product_is_not_kept_where_the_operand_says_all(tmp_path: Path) -> None:
    plan = planned(tmp_path, LINEAR, "op: relu, save: v", AMAX, LESS)
    assert not plan.variants[0].needs_source
