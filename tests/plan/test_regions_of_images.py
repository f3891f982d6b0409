"""Chains of several convolutions: how they are cut, the positions of values between regions, and memory formats."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.plan.load import planned_document
from fusegen.plan.modules.module import ModulePlan
from fusegen.render.package import render_all
from fusegen.render.python.region_formats import formats, writes
from fusegen.spec.yaml import parse_yaml

HEAD = """\
fusegen: 1
name: demo
dims: {batch: 8, channels: 16, height: 12, width: 10, out: 32%s}
arguments: {channels: {type: dim}, out: {type: dim}}
inputs: {x: [batch, channels, height, width]%s}
dtypes: [float32]
chain:
"""
# A stride of two in both branches, whose results meet.
DOWN = """\
  - {op: conv2d, name: conv1, out_channels: out, kernel_size: 3, stride: 2, padding: 1, bias: false}
  - {op: batch_norm, name: bn1}
  - {op: relu}
  - {op: conv2d, name: conv2, out_channels: out, kernel_size: 3, padding: 1, bias: false}
  - {op: batch_norm, name: bn2, save: main}
  - {op: conv2d, from: x, name: down, out_channels: out, kernel_size: 1, stride: 2, bias: false}
  - {op: batch_norm, name: bn3}
  - {op: add, value: main}
  - {op: relu}
"""
# Layers over the channels, as in ConvNeXt.
MIXED = """\
  - {op: conv2d, name: dwconv, out_channels: channels, kernel_size: 7, padding: 3, groups: channels}
  - {op: layer_norm, name: norm}
  - {op: linear, name: up, out_features: out}
  - {op: gelu}
  - {op: linear, name: down, out_features: channels}
  - {op: mul, parameter: gamma, shape: [channels], init: 0.5}
  - {op: add, input: x}
"""


def planned(chain: str, dims: str = "", inputs: str = "") -> ModulePlan:
    made = planned_document(parse_yaml(HEAD % (dims, inputs) + chain, "demo.yaml"))
    assert not made.single
    return made


def refused(chain: str, dims: str = "", inputs: str = "") -> list[str]:
    with pytest.raises(SpecError) as caught:
        planned(chain, dims, inputs)
    return [f"{each.code} {each.message}" for each in caught.value.diagnostics]


def test_positions_behind_a_stride_have_symbols_of_their_own() -> None:
    made = planned(DOWN)
    taken = {region.name: region.inputs for region in made.regions}
    smaller = ("batch", "out", "height_2", "width_2")
    assert taken["conv2"] == {"conv1_result": smaller}
    assert taken["down"] == {"x": ("batch", "channels", "height", "width"), "main": smaller}
    assert made.plans[1].spec.dims == {"batch": 8, "out": 32, "height_2": 6, "width_2": 5}
    text = render_all([made])["demo/__init__.py"]
    assert "Returns [batch, out, height_2, width_2]." in text


def test_an_input_names_the_positions_of_a_value() -> None:
    """It has the sizes that planning finds for that value."""
    chain = DOWN.replace("value: main", "input: shortcut").replace(", save: main", "").replace("from: x, ", "")
    chain = chain.replace("name: down, out_channels: out, kernel_size: 1, stride: 2", "name: down, out_channels: out, "
                          "kernel_size: 1")  # fmt: skip
    shortcut = ", shortcut: [batch, out, rows, columns]"
    made = planned(chain, ", rows: 6, columns: 5", shortcut)
    assert made.shapes["conv1_result"] == ("batch", "out", "rows", "columns")
    (message,) = refused(chain, ", rows: 7, columns: 5", shortcut)
    assert (
        "'shortcut' has the shape [batch, out, rows, columns], which does not broadcast to [batch, out, 6, 5]"
        in message
    )


def test_what_keeps_or_restores_positions_lets_the_input_be_added() -> None:
    same = (
        DOWN.replace("stride: 2, ", "").replace(", stride: 2", "").replace("value: main", "value: main}\n  - {op: tanh")
    )
    assert planned(same).shapes["main"] == ("batch", "out", "height", "width")
    up = """\
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3, stride: 2, padding: 1}
  - {op: conv_transpose2d, name: up, out_channels: channels, kernel_size: 4, stride: 2, padding: 1}
  - {op: add, input: x}
"""
    assert planned(up).shapes["up_result"] == ("batch", "channels", "height", "width")
    (message,) = refused(up.replace("kernel_size: 4", "kernel_size: 3"))
    assert "does not broadcast to [batch, channels, 11, 9]" in message


def test_a_layer_among_convolutions_is_one_over_the_channels() -> None:
    made = planned(MIXED)
    text = render_all([made])["demo/__init__.py"]
    for line in (
        "v = self.norm(v.movedim(1, -1)).movedim(-1, 1)",
        "v = self.up(v.movedim(1, -1)).movedim(-1, 1)",
        "v = v * self.gamma[:, None, None]",
        "self.norm = nn.LayerNorm(channels, eps=1e-05, **_factory)",
        "self.gamma = nn.Parameter(torch.full((channels,), float(0.5), **_factory))",
    ):
        assert line in text, line
    (message,) = refused(MIXED.replace("shape: [channels]", "shape: [channels, height, width]"))
    assert "varies over positions" in message


def test_without_a_layer_a_norm_says_that_it_is_over_the_channels() -> None:
    chain = MIXED.replace("linear, name: up, out_features: out", "conv2d, name: up, out_channels: out, kernel_size: 1")
    chain = chain.replace("linear, name: down, out_features", "conv2d, name: down, kernel_size: 1, out_channels")
    messages = refused(chain)
    assert len(messages) == 2 and "the norm is over positions" in messages[0]
    assert "'dim: 1' is the channels" in messages[0] and "the shape [channels] varies over positions" in messages[1]
    planned(chain.replace("name: norm", "name: norm, dim: 1").replace("[channels]", "[channels, 1, 1]"))


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (DOWN, '((0, ("down",)),)'),
        (DOWN.replace("from: x, ", ""), None),
        (MIXED, "(True,)"),
        (MIXED + "  - {op: conv2d, name: last, out_channels: out, kernel_size: 1}\n", "(True,)"),
    ],
)
def test_formats_of_results(chain: str, expected: str | None) -> None:
    if expected is None:
        assert "does not broadcast" in refused(chain)[0]
    else:
        assert formats(planned(chain)) == expected


def test_one_dimension_of_positions_has_one_format() -> None:
    chain = "".join(line for line in MIXED.splitlines(keepends=True)).replace("conv2d", "conv1d")
    head = (HEAD % ("", "")).replace(", width: 10", "").replace("height, width]", "height]")
    behind = "  - {op: conv1d, name: last, out_channels: channels, kernel_size: 1}\n"
    found = [formats(planned_document(parse_yaml(head + each, "demo.yaml"))) for each in (chain, chain + behind)]
    assert found == ["(True,)", "(False,)"]


def test_which_regions_write_contiguous_results() -> None:
    """Those whose value leaves the module, and what their tiles read beside the convolution's result."""
    assert writes(planned(DOWN)) == {"demo_down": 0, "demo_conv2": 0}
    by_rows = planned(DOWN + "  - {op: softmax, dim: 1}\n")  # which has no tiles
    assert writes(by_rows) == {"demo_down": 0}
    assert writes(planned(DOWN + "outputs: [result, main]\n")) == {"demo_down": 0}
    layer = DOWN.rpartition("  - {op: batch_norm, name: bn3}")[0]  # PyTorch's
    assert writes(planned(layer + "outputs: [result, main]\n")) == {"demo_conv2": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("conv2d, name: conv2", "conv1d, name: conv2"), "FG308 conv1d takes 1 dimensions of positions"),
        (("kernel_size: 3, padding: 1, bias: false}\n  - {op: batch_norm, name: bn2", "kernel_size: 30, bias: false}\n"
          "  - {op: batch_norm, name: bn2"), "FG303 the result would have no positions"),
        (("{op: relu}\n  - {op: conv2d, name: conv2", "{op: sum, dim: 1, keepdim: false}\n"
          "  - {op: conv2d, name: conv2"),
         "FG309 a later region takes values"),
        (("value: main}\n  - {op: relu}", "value: main}\n  - {op: mean, dim: [1, 3], keepdim: false}\n  - {op: tanh}"),
         "FG309 a later region takes values with the channels, and 'region_4' ends without these"),
        (("[batch, channels, height, width]", "[batch, channels]"), "FG303 the first input must have the shape"),
        (("{op: relu}\n  - {op: conv2d, name: conv2", "{op: mean, dim: 3, keepdim: false}\n"
          "  - {op: conv2d, name: conv2"), "FG308 conv2d takes 2 dimensions of positions, and"),
        (("value: main}\n  - {op: relu}", "value: main}\n  - {op: bmm, input: x}"), "FG308 bmm has to be"),
    ],
    ids=["other dimensions", "no positions", "a value of each row", "a value of each height", "no images",
         "a dimension less", "bmm"],
)  # fmt: skip
def test_refusals(change: tuple[str, str], message: str) -> None:
    text = HEAD % ("", "") + DOWN
    assert change[0] in text
    with pytest.raises(SpecError) as caught:
        planned_document(parse_yaml(text.replace(*change), "demo.yaml"))
    assert any(f"{each.code} {each.message}".startswith(message) for each in caught.value.diagnostics)


def test_a_value_of_one_channel_is_a_gate_where_another_region_takes_it() -> None:
    """What is behind it is from another value, which has all channels."""
    made = planned("""\
  - {op: conv2d, name: conv1, out_channels: out, kernel_size: 3, padding: 1}
  - {op: relu, save: value}
  - {op: mean, dim: 1, keepdim: true}
  - {op: sigmoid, save: gate}
  - {op: conv2d, from: value, name: conv2, out_channels: channels, kernel_size: 3, padding: 1}
  - {op: mul, value: gate}
""")
    assert made.regions[1].inputs["gate"] == ("batch", 1, "height", "width")


def test_rows_in_front_of_images_are_refused_with_what_to_do() -> None:
    text = """\
fusegen: 1
name: demo
dims: {batch: 8, channels: 16, height: 6, width: 5}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels], image: [batch, channels, height, width]}
chain:
  - {op: linear, name: fc, out_features: channels}
  - {op: unsqueeze, positions: 2, save: gate}
  - {op: mul, value: gate, from: image}
"""
    with pytest.raises(SpecError) as caught:
        planned_document(parse_yaml(text, "demo.yaml"))
    (found,) = caught.value.diagnostics
    assert found.hint == "give images as the first input, and rows behind them"
