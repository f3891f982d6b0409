"""Regions that begin with an input of fewer rows than the first one, and results without channels beside others."""

from __future__ import annotations

import re

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_document
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.package import render_all
from fusegen.spec.yaml import parse_yaml

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 4, seq: 16, width: 32, cond: 24}
arguments: {width: {type: dim}, cond: {type: dim}}
inputs: {x: [batch, seq, width], c: SHAPE}
dtypes: [float32]
chain:
"""
MODULATED = """\
  - {op: silu, from: c}
  - {op: linear, name: modulation, out_features: 2 * width}
  - {op: chunk, parts: [shift, scale]}
  - {op: layer_norm, from: x, name: norm, affine: false}
  - {op: mul, value: scale, plus: 1}
  - {op: add, value: shift}
  - {op: linear, name: out, out_features: width}
"""
GATED = """\
  - {op: linear, from: c, name: gate, out_features: width}
  - {op: gelu, save: opened}
  - {op: div, input: x, swap: true}
"""
ROWS = """\
fusegen: 1
name: demo
dims: {rows: 64, width: 32, classes: 10}
arguments: {width: {type: dim}, classes: {type: dim}}
inputs: {x: [rows, width], target: [rows]}
dtypes: [float32]
chain:
  - {op: linear, name: head, out_features: classes, save: logits}
  - {op: logsumexp, keepdim: false, save: total}
  - {op: cross_entropy, from: logits, target: target}
outputs: OUTPUTS
"""


def planned(text: str) -> ModulePlan:
    return planned_document(parse_yaml(text, "demo.yaml"))


def conditioned(chain: str, shape: str = "[batch, cond]") -> ModulePlan:
    return planned(HEAD.replace("SHAPE", shape) + chain)


def region_inputs(made: ModulePlan) -> list[dict]:
    return [dict(plan.spec.inputs) for plan in made.plans]


@pytest.mark.parametrize(
    ("shape", "own", "made"),
    [
        ("[batch, cond]", ("batch", "cond"), ("batch", "width")),
        ("[batch, 1, cond]", ("batch", "cond"), ("batch", 1, "width")),
        ("[1, seq, cond]", ("seq", "cond"), (1, "seq", "width")),
        ("[seq, cond]", ("seq", "cond"), ("seq", "width")),
    ],
)
def test_a_condition_is_a_chain_of_its_own_rows(shape: str, own: tuple, made: tuple) -> None:
    plan = conditioned(MODULATED, shape)
    found = region_inputs(plan)
    assert found[0] == {"c": own}
    assert found[2] == {"x": ("batch", "seq", "width"), "scale": made, "shift": made}
    assert [region.is_broadcast for region in plan.regions] == [True, True, False, False]
    assert (plan.dimensions.least, plan.dimensions.most) == (3, 3)
    assert plan.fixed_dimensions["c"] == shape.count(",") + 1


def test_an_operand_with_all_rows_begins_a_region() -> None:
    """Its kernels have all rows, and divide by the value of fewer. A gelu of few elements stays where these are."""
    plan = conditioned(GATED)
    assert region_inputs(plan) == [
        {"c": ("batch", "cond")},
        {"x": ("batch", "seq", "width"), "opened": ("batch", "width")},
    ]
    assert [step.op for step in plan.plans[0].spec.chain] == ["linear", "gelu"]
    assert plan.plans[1].spec.chain[0].swap is False


@pytest.mark.parametrize(("shape", "missing"), [("[batch, cond]", "[:, None]"), ("[batch, 1, cond]", "")])
def test_the_reference_gives_values_the_dimensions_that_lack(shape: str, missing: str) -> None:
    text = str(render_all([conditioned(MODULATED, shape)])["demo/__init__.py"])
    assert text.count(f"v = v * (scale{missing} + 1.0)\n") == 3 and text.count(f"v = v + shift{missing}\n") == 3
    text = str(render_all([conditioned(GATED, shape)])["demo/__init__.py"])
    assert f"        v = x / opened{missing}\n" in text


@pytest.mark.parametrize(
    ("chain", "shape", "reason"),
    [
        (MODULATED, "[cond, width]", "'c' has other rows than 'x', [cond] and not [batch, seq]: a region cannot begin"),
        (MODULATED, "[1, 1, cond]", "'c' has other rows than 'x', [1, 1] and not [batch, seq]"),
        (
            MODULATED.replace("silu, from: c}", "batch_norm, from: c, name: bn}"),
            "[batch, 1, cond]",
            "batch_norm takes inputs of two dimensions, and 'c' has 3",
        ),
        (
            GATED.replace(", save: opened", "").replace("swap: true", "plus: 1"),
            "[batch, cond]",
            "does not broadcast to [batch, width]",
        ),
    ],
    ids=["unknown rows", "no rows", "a norm over dimension 1", "an operand that stays one"],
)
def test_refusals(chain: str, shape: str, reason: str) -> None:
    with pytest.raises(SpecError) as caught:
        conditioned(chain, shape)
    assert any(reason in each.message for each in caught.value.diagnostics)


def test_what_has_no_channels_is_a_region_of_its_own_beside_other_results() -> None:
    plan = planned(ROWS.replace("OUTPUTS", "[result, total, logits]"))
    assert [region.results for region in plan.regions] == [("logits",), ("total",), ("region_3_result",)]
    text = str(render_all([plan])["demo/__init__.py"])
    assert "Returns result [], total [rows], logits [rows, classes]." in text


def test_one_result_without_channels_needs_no_further_region() -> None:
    text = ROWS.replace("OUTPUTS", "[result, total]").replace("keepdim: false", "keepdim: true")
    assert planned(text).single


def test_a_value_without_channels_is_no_operand() -> None:
    text = re.sub("  - {op: cross.*", "  - {op: sub, from: logits, value: total}", ROWS).replace(", target: [rows]", "")
    with pytest.raises(SpecError, match=r"a later region takes values with the channels, and 'region_2' ends"):
        planned(text.replace("OUTPUTS", "[result, total]"))
