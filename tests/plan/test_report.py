"""What `fusegen plan` and plan.json say is true of the chain at hand: nothing of a layer, a bias, a dtype that is not
there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusegen.explain.text import report
from fusegen.plan.load import plan_document
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.product_gradient import IN_PLACE
from fusegen.plan.summary import summary
from fusegen.spec.yaml import parse_yaml
from tests.emulate.other_chains import HAND_PICKED
from tests.plan.planning import LINEAR, planned

# With and without a linear layer, a bias, norms of each kind and further inputs.
CHAINS = (
    "batch_before_group", "group_before_layer", "rms_between_groups", "layer_norm_of_input", "group_norm_of_input",
    "groups_of_one_channel", "batch_norm_bare", "residual", "input_only_detached", "with_itself",
)  # fmt: skip
BARE = f"{LINEAR}, bias: false"
BN, GN, LN = (
    "op: batch_norm, name: bn",
    "op: group_norm, name: gn, num_groups: 4",
    "op: layer_norm, name: ln",
)


def other(name: str) -> Plan:
    return plan_document(parse_yaml(HAND_PICKED[name].spec(name), f"{name}.yaml"))


def programs(plan: Plan) -> dict[str, dict]:
    return {p["name"]: p for variant in summary(plan)["variants"] for p in variant["programs"]}


@pytest.mark.parametrize("name", CHAINS)
def test_nothing_is_told_of_what_is_not_there(name: str) -> None:
    plan = other(name)
    chain, text = plan.chain, report(plan)
    ops = {step.op for step in plan.spec.chain}
    assert ("contraction" in text) == (chain.contraction is not None)
    assert ("add the bias" in text) == any(parameter.in_product for parameter in chain.parameters.values())
    assert ("each group" in text or "group of channels" in text) == any(
        step.op == "group_norm" and step.num_groups != 1 for step in plan.spec.chain
    )
    rows = ops & {"layer_norm", "rms_norm"} or any(
        step.op == "group_norm" and step.num_groups == 1 for step in plan.spec.chain
    )
    assert bool(re.search(r"each row\b|a row stays\b", text)) == bool(rows)
    assert "float64" not in text and "float64" not in str(summary(plan))
    read = {tensor.name for program in plan.programs for tensor in program.inputs}
    known = read | {tensor.name for tensor in chain.inputs}
    known |= {chain.contraction.result} if chain.contraction else set()
    for variant in summary(plan)["variants"]:
        assert {*variant["saved"], *variant["inputs_saved"]} <= known


def test_what_a_chain_without_a_linear_layer_saves(tmp_path: Path) -> None:
    text = report(planned(tmp_path, "op: silu"))
    assert "\ntrain and eval: saves its input x for the backward pass\n" in text
    assert "\ndtypes of activations and result:\n  float32: float32, float32\n" in text


def test_what_is_saved_of_a_linear_layer_and_of_further_inputs(tmp_path: Path) -> None:
    hidden = ", r: [batch, hidden], s: [batch, hidden]"
    text = report(planned(tmp_path, LINEAR, "op: mul, input: r", "op: add, input: s", inputs=hidden))
    # The product and r for each other's gradient, x for that of the weight; s is only added.
    assert "saves gemm_product, its input x and its input r for the backward pass" in text
    assert "dtypes of activations, parameters, input r, input s and result:" in text


def test_nothing_is_saved_where_nothing_is_needed(tmp_path: Path) -> None:
    assert "saves nothing for the backward pass" in report(planned(tmp_path, "op: mul, constant: 2.0"))


@pytest.mark.parametrize(
    ("linear", "dtypes", "by", "bias"),
    [
        (BARE, "float32, bfloat16", "aten::mm", []),
        (LINEAR, "float32", "aten::mm", ["the kernels add the bias"]),
        (LINEAR, "bfloat16, float16", "aten::addmm", ["that adds the bias before it rounds"]),
        (
            LINEAR,
            "float16, float32",
            "aten::addmm in 16 bits, aten::mm in float32",
            ["in 16 bits that adds the bias before it rounds; in float32 the kernels add the bias"],
        ),
    ],
)
def test_who_multiplies_and_who_adds_the_bias(tmp_path: Path, linear, dtypes: str, by: str, bias: list[str]) -> None:
    lines = report(planned(tmp_path, linear, "op: relu", dtypes=dtypes)).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("contraction"))
    assert lines[at].endswith(f"-> hidden by {by}")
    assert [line.strip() for line in lines[at + 1 : lines.index("", at)]] == bias


def test_a_bias_that_the_library_adds_is_not_read(tmp_path: Path) -> None:
    """Nor are its bytes counted: [16, 64] is read and written in 16 bits, and a bias of 64 in float32 only."""
    narrow = programs(planned(tmp_path, LINEAR, "op: relu", dtypes="bfloat16"))["forward"]
    assert narrow["reads"] == ["gemm_product"] and narrow["floor_bytes"] == 2 * 2 * 16 * 64
    both = planned(tmp_path, LINEAR, "op: relu", dtypes="float32, bfloat16")
    assert programs(both)["forward"]["floor_bytes"] == 4 * (2 * 16 * 64 + 64)
    assert "reads  gemm_product, gemm_bias (in float32)\n" in report(both)
    assert "reads  gemm_product, gemm_bias\n" in report(planned(tmp_path, LINEAR, "op: relu", dtypes="float32"))


@pytest.mark.parametrize(
    ("steps", "forward", "backward"),
    [
        ((GN, LN), "each group is reduced before the last passes, which reduce each row",
         "each row is reduced before the last passes, which reduce each group"),
        ((BN, LN), "each column is reduced before the last passes, which reduce each row",
         "each row is reduced before the last passes, which reduce each column"),
    ],
)  # fmt: skip
def test_what_is_reduced_before_the_last_stage(tmp_path: Path, steps, forward: str, backward: str) -> None:
    for name, program in programs(planned(tmp_path, BARE, *steps)).items():
        if not name.startswith("eval"):
            assert program["reasons"] == ([forward] if name.endswith("forward") else [backward, IN_PLACE])


def test_the_chain_is_there_in_order(tmp_path: Path) -> None:
    steps = ("op: rms_norm, name: rms, eps: null", "op: clamp, min: 0.5", "op: silu, save: s", "op: add, value: s")
    plan = planned(tmp_path, BARE, *steps)
    assert summary(plan)["chain"] == [
        {"op": "linear", "name": "gemm", "out_features": "hidden", "bias": False, "precision": "ieee"},
        {"op": "rms_norm", "name": "rms", "eps": None, "affine": True},
        {"op": "clamp", "min": 0.5},
        {"op": "silu", "save": "s"},
        {"op": "add", "value": "s", "learnt": True, "swap": False, "detach": False},
    ]
    lines = report(plan).splitlines()
    assert lines[2:8] == [
        "chain",
        "  linear (name: gemm, out_features: hidden, bias: false)",
        "  rms_norm (name: rms, eps: null)",
        "  clamp (min: 0.5)",
        "  silu (save: s)",
        "  add (value: s)",
    ]


def test_another_activation_is_another_plan(tmp_path: Path) -> None:
    """relu and silu are read, written and scheduled alike; hardtanh's bounds are no more than numbers in a kernel."""
    one, other_ = (summary(planned(tmp_path, BARE, f"op: {op}")) for op in ("relu", "silu"))
    assert one != other_
    one, other_ = (summary(planned(tmp_path, BARE, f"op: hardtanh, max_val: {most}")) for most in (1.0, 2.0))
    assert one != other_


def test_small_sizes_are_no_zeros(tmp_path: Path) -> None:
    text = report(planned(tmp_path, "op: relu"))
    assert "floor 4.1 kB in float32: 0.0014 us" in text and " 0.0 " not in text


def test_a_chain_without_symbols_has_no_sizes_to_tell() -> None:
    text = "fusegen: 1\nname: fixed\nabout: A demo\ndims: {}\ninputs: {x: [4, 8]}\nchain: [{op: relu}]\n"
    assert report(plan_document(parse_yaml(text, "fixed.yaml"))).startswith("fixed\n\nchain\n")
