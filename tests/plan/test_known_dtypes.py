"""The dtype configurations of regions under autocast: values whose dtype the spec decides come in that one alone."""

from __future__ import annotations

import re

from fusegen.plan.load import planned_file
from fusegen.plan.modules.module import compiled
from fusegen.render.package import render_package

SPEC = """\
fusegen: 1
name: known
dims: {rows: 64, width: 32}
arguments: {width: {type: dim}}
inputs: {x: [rows, width], r: [rows, width]}
dtypes: [float32, bfloat16, float16]
chain:
"""


def plans(tmp_path, *steps: str, inputs: str | None = None):
    """By the name of the region."""
    text = SPEC + "".join(f"  - {{op: {step}}}\n" for step in steps)
    text = text if inputs is None else re.sub("inputs: .*", f"inputs: {{{inputs}}}", text)
    (tmp_path / "known.yaml").write_text(text)
    planned = planned_file(tmp_path / "known.yaml")
    return planned, {plan.spec.name.removeprefix("known_"): plan for plan in compiled([planned])}


def under_autocast(plan) -> set[tuple[str, ...]]:
    """Activations, then further inputs by their names."""
    names = sorted(plan.chain.further)
    found = [mode.roles for mode in plan.modes if mode.autocast]
    return {(roles["activation"], *(roles[f"input {name}"] for name in names)) for roles in found}


GATE = ("linear, name: a, out_features: width", "sigmoid, save: opened")
BEHIND = ("linear, from: r, name: b, out_features: width", "mul, value: opened", "add, input: x")


def test_what_a_layer_made_beside_an_input(tmp_path) -> None:
    """The gate is in 16 bits, the input in either; no other pair is compiled."""
    planned, found = plans(tmp_path, *GATE, *BEHIND)
    narrow = [("bfloat16", "bfloat16"), ("float16", "float16")]
    assert sorted(found["b"].chain.further)[1:] == ["x"]
    assert under_autocast(found["b"]) == {(a, gate, x) for a, gate in narrow for x in ("float32", a)}
    names = [mode.name for mode in found["b"].modes]
    assert len(set(names)) == len(names)
    module = render_package(planned)["known_b/__init__.py"]
    given = sorted(found["b"].chain.further)[0]
    assert re.search(rf"choose_mode\([^)]*, \({given}\.dtype, x\.dtype\)", module)
    assert "(torch.bfloat16, torch.float32, torch.float32, torch.bfloat16, torch.float32)," in module


def test_what_a_norm_made_is_in_float32(tmp_path) -> None:
    norm = ("layer_norm, name: n, save: normed", "linear, name: a, out_features: width", "add, value: normed")
    _, found = plans(tmp_path, *norm, inputs="x: [rows, width]")
    assert under_autocast(found["a"]) == {("bfloat16", "float32"), ("float16", "float32")}


def test_what_is_made_of_inputs_alone_is_as_they_are(tmp_path) -> None:
    total = ("add, input: r, save: total", "linear, name: a, out_features: width", "add, value: total")
    _, found = plans(tmp_path, *total)
    assert under_autocast(found["a"]) == {(a, t) for a in ("bfloat16", "float16") for t in ("float32", a)}


def test_a_region_without_a_layer_takes_each_narrow_dtype(tmp_path) -> None:
    """Its first input may be in float32 beside a gate in either format of 16 bits."""
    steps = (*GATE, "layer_norm, from: r, name: n", "mul, value: opened", "add, input: x")
    _, found = plans(tmp_path, *steps)
    whole = under_autocast(found["n"])
    gates = {"bfloat16", "float16"}
    assert {(a, g) for a, g, _ in whole} == {*(("float32", gate) for gate in gates), *((gate, gate) for gate in gates)}
    assert all(x in ("float32", g) for _, g, x in whole)


def test_a_layer_that_pytorch_calls_makes_16_bits(tmp_path) -> None:
    steps = ("linear, name: a, out_features: width, save: plain", "linear, from: r, name: b, out_features: width")
    _, found = plans(tmp_path, *steps, "add, value: plain", "add, input: x")
    assert set(found) == {"b"}
    assert ("bfloat16", "bfloat16", "float32") in under_autocast(found["b"])
    assert not any("float32" in (a, plain) for a, plain, _ in under_autocast(found["b"]))


def test_a_value_with_the_name_of_a_convolutions_result(tmp_path) -> None:
    """It is what the norm behind that makes, in float32."""
    steps = ("conv1d, name: conv, out_channels: width, kernel_size: 1", "group_norm, name: n, num_groups: 4",
             "max_pool1d, name: pool, kernel_size: 2", "silu")  # fmt: skip
    text = SPEC.replace("rows: 64", "rows: 64, length: 8, channels: 4").replace(
        "width: {", "channels: {type: dim}, width: {"
    )
    (tmp_path / "known.yaml").write_text(
        re.sub("inputs: .*", "inputs: {x: [rows, channels, length]}", text)
        + "".join(f"  - {{op: {step}}}\n" for step in steps)
    )
    planned = planned_file(tmp_path / "known.yaml")
    assert planned.regions[0].results == ("conv_result",)
    assert under_autocast(planned.regions[1].plan) == {("float32",)}
