"""Imports of modules that reduce or normalise positions of images, and go on with rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fusegen.errors import SpecError
from fusegen.importing.module import from_module
from fusegen.plan.load import planned_document
from fusegen.spec.yaml import parse_yaml
from tests.importing.convolved import Convolved

pytestmark = pytest.mark.torch
CONV = "self.conv = nn.Conv2d(c, c, 3)\n"
SHAPE = (2, 4, 9, 8)


def steps(text: str) -> list[dict[str, Any]]:
    return [dict(step) for step in parse_yaml(text, "spec.yaml").data["chain"]]


def spec_of(text: str) -> Any:
    return planned_document(parse_yaml(text, "spec.yaml")).spec


def behind(made: str, result: str) -> list[dict[str, Any]]:
    """The steps behind a convolution, whose result is y."""
    source = Convolved("c", CONV + made, f"y = self.conv(x)\nreturn {result}")
    return steps(source.imported((4,), SHAPE))[1:]


def over(op: str, dim: Any, keepdim: bool = False, **more: Any) -> dict[str, Any]:
    return {"op": op, "keepdim": keepdim, "dim": dim, **more}


NORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "group norm": ("self.n = nn.GroupNorm(2, c)", {"op": "group_norm", "num_groups": 2}),
    "instance norm": ("self.n = nn.InstanceNorm2d(c)", {"op": "instance_norm"}),
    "instance norm with statistics": (
        "self.n = nn.InstanceNorm2d(c, affine=True, track_running_stats=True, momentum=0.3)",
        {"op": "instance_norm", "affine": True, "momentum": 0.3, "track_running_stats": True},
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms(name: str) -> None:
    made, wanted = NORMS[name]
    assert behind(made, "torch.relu(self.n(y))") == [{**wanted, "name": "n"}, {"op": "relu"}]


SIZED: dict[str, tuple[str, str, tuple[Any, ...], dict[str, Any]]] = {
    "a width that is an argument": ("c, w", "nn.LayerNorm(w)", (4, 7), {"op": "layer_norm", "normalized_shape": ["w"]}),
    "the channels' number": ("c", "nn.LayerNorm(c)", (7,), {"op": "layer_norm", "normalized_shape": ["c"]}),
    "a shape": ("c, s", "nn.RMSNorm(s, 1e-6)", (4, (6, 7)), {"op": "rms_norm", "eps": 1e-06, "normalized_shape": "s"}),
    "numbers": ("c", "nn.LayerNorm([c, 6, 7])", (4,), {"op": "layer_norm", "normalized_shape": ["c", 6, 7]}),
}


@pytest.mark.parametrize("name", SIZED)
def test_norms_over_so_many_positions(name: str) -> None:
    arguments, made, values, wanted = SIZED[name]
    source = Convolved(
        arguments, f"self.conv, self.n = nn.Conv2d(c, c, 1), {made}", "return F.gelu(self.n(self.conv(x)))"
    )
    text = source.imported(values, (2, values[0], 6, 7))
    assert steps(text)[1:] == [{**wanted, "name": "n"}, {"op": "gelu"}]
    assert spec_of(text).inputs == {"x": ("batch", "c", "height", "width")}


REDUCTIONS = {
    "y.mean([2, 3]).relu()": [over("mean", [2, 3]), {"op": "relu"}],
    "torch.mean(y, dim=(-1, -2), keepdim=True).relu()": [over("mean", [2, 3], True), {"op": "relu"}],
    "y.mean(dim=2).mean(dim=2)": [over("mean", 2), over("mean", 2)],
    "torch.max(y, dim=2)[0].softmax(1)": [over("max", 2), {"op": "softmax", "dim": 1}],
    "torch.min(y, dim=-1, keepdim=True).values.tanh()": [over("min", 3, True), {"op": "tanh"}],
    "torch.logsumexp(y, dim=(2, 3))": [over("logsumexp", [2, 3])],
    "torch.amax(y, (2, 3)) * 2": [over("amax", [2, 3]), {"op": "mul", "constant": 2}],
    "y.std((2, 3))": [over("std", [2, 3])],
    "torch.var(y, [2, 3], unbiased=False)": [over("var", [2, 3], correction=0)],
    "torch.norm(y, p=1, dim=(2, 3))": [over("norm", [2, 3], p=1)],
    "torch.softmax(y, dim=-1)": [{"op": "softmax", "dim": 3}],
    "F.normalize(y, dim=2)": [{"op": "normalize", "dim": 2}],
    "y.flatten(2).max(2)[0]": [over("max", 3), over("max", 2)],
    "y.flatten(2).min(2, keepdim=True)[0].squeeze(2)": [over("min", 3, True), over("min", 2, True), {"op": "flatten"}],
    "y.flatten(2).mean(-1)": [over("mean", [2, 3])],
    "y.flatten(2).transpose(1, 2).mean(1)": [over("mean", [2, 3])],
    "y.view(y.size(0), y.size(1), -1).softmax(2).view_as(y)": [
        over("logsumexp", [2, 3], True),
        {"op": "sub", "value": "y", "swap": True},
        {"op": "exp"},
    ],
    "y.sum((1, 2, 3)).tanh()": [over("sum", [2, 3]), over("sum", 1), {"op": "tanh"}],
    "y - y.mean((1, 2, 3), keepdim=True)": [over("mean", [1, 2, 3], True), {"op": "sub", "value": "y", "swap": True}],
    "torch.logsumexp(y, 1, keepdim=True).sum((2, 3)) * 2": [
        *(over("logsumexp", 1, True), over("sum", [2, 3]), {"op": "mul", "constant": 2})
    ],
}


@pytest.mark.parametrize("result", REDUCTIONS)
def test_reductions(result: str) -> None:
    assert behind("", result) == REDUCTIONS[result]


VIEWS = {
    "y.mean((2, 3), keepdim=True).flatten(1)": [over("mean", [2, 3])],
    "y.mean(3).unsqueeze(3)": [over("mean", 3, True)],
    "F.adaptive_avg_pool2d(y, 1).view(y.size(0), -1)": [{"op": "flatten"}],
    "F.adaptive_avg_pool2d(y, 1).squeeze(-1).squeeze(-1)": [{"op": "flatten"}],
    "F.adaptive_avg_pool2d(y, 1)[:, :, 0, 0]": [{"op": "flatten"}],
    "F.adaptive_avg_pool2d(y, 1).flatten(1)[..., None, None].relu()": [{"op": "relu"}],
    "y.transpose(2, 3).mean(2)": [over("mean", 3)],
    "y.transpose(2, 3).relu().transpose(2, 3)": [{"op": "relu"}],
    "y.mean(1).unsqueeze(1).amax((2, 3))": [over("mean", 1, True), over("amax", [2, 3])],
    "torch.flatten(y, 1).relu()": [{"op": "flatten"}, {"op": "relu"}],
}


@pytest.mark.parametrize("result", VIEWS)
def test_views(result: str) -> None:
    assert [step for step in behind("", result) if "pool" not in step["op"]] == VIEWS[result]


ONE_CHANNEL: dict[str, list[dict[str, Any]]] = {
    "self.one(y).squeeze(1)": [over("mean", 1)],
    "F.adaptive_avg_pool2d(self.one(y), 1).view(-1).tanh()": [{"op": "flatten"}, over("mean", 1), {"op": "tanh"}],
    "y * torch.sigmoid(self.one(y).mean((2, 3)))[:, :, None, None]": [
        *(over("mean", [2, 3]), {"op": "sigmoid"}, {"op": "unsqueeze", "positions": 2}, {"op": "mul", "value": "y"})
    ],
    "y * y.mean((2, 3)).mean(1, keepdim=True)[:, :, None, None]": [
        *(over("mean", [2, 3]), over("mean", 1, True), {"op": "unsqueeze", "positions": 2}, {"op": "mul", "value": "y"})
    ],
}


@pytest.mark.parametrize("result", ONE_CHANNEL)
def test_one_channel(result: str) -> None:
    """A mean drops the dimension of one channel, and changes nothing."""
    made = "self.one = nn.Conv2d(c, 1, 1)" if "self.one" in result else ""
    found = [step for step in behind(made, result) if "pool" not in step["op"] and "conv" not in step["op"]]
    assert found == ONE_CHANNEL[result]


def test_manual_instance_norm_is_no_layer_norm() -> None:
    lines = (
        "d = y - y.mean((2, 3), keepdim=True)\nreturn d / torch.sqrt(y.var((2, 3), correction=0, keepdim=True) + 1e-5)"
    )
    text = Convolved("c", CONV, f"y = self.conv(x)\n{lines}").imported((4,), SHAPE)
    assert [step["op"] for step in steps(text)] == ["conv2d", "mean", "sub", "var", "add", "sqrt", "div"]


def test_what_follows_is_of_rows() -> None:
    made = "self.bn, self.bias, self.fc = nn.BatchNorm1d(c), nn.Parameter(torch.ones(c)), nn.Linear(c, 5)"
    found = behind(made, "F.log_softmax(self.fc(self.bn(y.amin((2, 3))) + self.bias), dim=-1)")
    assert found[1:] == [
        {"op": "batch_norm", "name": "bn"},
        {"op": "add", "parameter": "bias", "shape": ["c"], "init": "ones"},
        {"op": "linear", "name": "fc", "out_features": 5},
        {"op": "log_softmax", "dim": 1},
    ]


def test_a_loss_of_rows() -> None:
    """Its target has the batch alone."""
    source = Convolved("c", CONV, "return F.cross_entropy(self.conv(x).mean((2, 3)), target)", "x, target")
    module = source.module(4)
    inputs = [torch.randn(SHAPE), torch.randint(4, (2,))]
    spec = spec_of(from_module(module, inputs, arguments=[4]))
    assert spec.inputs == {"x": ("batch", "c", "height", "width"), "target": ("batch",)}
    assert spec.chain[-1].op == "cross_entropy"


GATES = {
    "g[:, :, None, None] * x": "x.mean((2, 3))",
    "x * g.view(x.size(0), -1, 1, 1)": "F.adaptive_avg_pool2d(x, 1).flatten(1)",
    "x * g.unsqueeze(-1).unsqueeze(-1).expand_as(x)": "x.amax((-2, -1))",
}


@pytest.mark.parametrize("result", GATES)
def test_squeeze_and_excite_with_linear_layers(result: str) -> None:
    """No convolution says that the first input is an image."""
    made = "self.fc = nn.Sequential(nn.Linear(c, r), nn.ReLU(inplace=True), nn.Linear(r, c), nn.Sigmoid())"
    text = Convolved("c, r", made, f"g = self.fc({GATES[result]})\nreturn {result}").imported((6, 3), (2, 6, 7, 8))
    found = steps(text)
    *_, gate, last = found
    assert gate == {"op": "unsqueeze", "positions": 2} and last == {"op": "mul", "input": "x"}
    assert [step["op"] for step in found[-6:-2]] == ["linear", "relu", "linear", "sigmoid"]


def test_a_block_with_the_embedding_of_a_time() -> None:
    made = """
    self.n1, self.n2 = nn.GroupNorm(g, c), nn.GroupNorm(g, m)
    self.c1, self.c2 = nn.Conv2d(c, m, 3, padding=1), nn.Conv2d(m, m, 3, padding=1)
    self.time, self.way = nn.Linear(e, m), nn.Conv2d(c, m, 1)
    """
    lines = """
    h = self.c1(F.silu(self.n1(x)))
    h = h + self.time(F.silu(t))[:, :, None, None]
    return self.c2(F.silu(self.n2(h))) + self.way(x)
    """
    text = Convolved("c, m, e, g", made, lines, "x, t").imported((4, 8, 10, 2), (2, 4, 8, 8), (2, 10))
    assert spec_of(text).inputs == {"x": ("batch", "c", "height", "width"), "t": ("batch", "e")}
    assert [step["op"] for step in steps(text)] == [
        *("group_norm", "silu", "conv2d", "silu", "linear", "unsqueeze", "add"),
        *("group_norm", "silu", "conv2d", "conv2d", "add"),
    ]


@pytest.mark.parametrize("layer", ["nn.Conv2d(c, c, 1)", "nn.InstanceNorm2d(c)"])
def test_a_scale_and_a_shift_of_an_embedding(layer: str) -> None:
    made = f"self.f, self.time = {layer}, nn.Linear(e, 2 * c)"
    lines = "scale, shift = self.time(t)[..., None, None].chunk(2, dim=1)\nreturn self.f(x) * (1 + scale) + shift"
    text = Convolved("c, e", made, lines, "x, t").imported((4, 10), SHAPE, (2, 10))
    *_, parts, scaled, moved = steps(text)
    assert parts == {"op": "chunk", "parts": ["scale", "shift"]} and moved == {"op": "add", "value": "shift"}
    assert (scaled["value"], scaled["plus"]) == ("scale", 1)


def test_inputs_of_one_position() -> None:
    made = "self.conv, self.n = nn.Conv2d(c, c, 3), nn.GroupNorm(2, c)"
    source = Convolved("c", made, "return (1 + scale) * self.n(self.conv(x)) + shift", "x, scale, shift")
    text = source.imported((4,), SHAPE, (2, 4, 1, 1), (2, 4, 1, 1))
    assert spec_of(text).inputs["scale"] == spec_of(text).inputs["shift"] == ("batch", "c", 1, 1)
    assert steps(text)[2:] == [{"op": "mul", "input": "scale", "plus": 1}, {"op": "add", "input": "shift"}]


def test_layers_over_the_channels_of_positions_in_one_dimension() -> None:
    made = "self.n, self.fc = nn.LayerNorm(c), nn.Linear(c, c)"
    found = behind(made, "y + self.fc(self.n(y.flatten(2).transpose(1, 2))).transpose(1, 2).view_as(y)")
    assert [step["op"] for step in found] == ["layer_norm", "linear", "add"] and found[0]["dim"] == 1


_NORMS = ["layer_norm", "batch_norm"]


@pytest.mark.parametrize(
    ("made", "lines", "shape", "ops"),
    [
        ("self.n = nn.GroupNorm(2, c)", "F.silu(self.n(x))", (2, 4, 6, 7), ["group_norm", "silu"]),
        ("self.n, self.bn = nn.LayerNorm([c, 9]), nn.BatchNorm1d(c)", "self.bn(self.n(x))", (2, 4, 9), _NORMS),
        ("self.n = nn.InstanceNorm1d(c, affine=True)", "self.n(x) * 2", (2, 4, 9), ["instance_norm", "mul"]),
        ("", "x.exp().mean((2, 3))", (2, 4, 6, 7), ["exp", "mean"]),
        ("", "x - x.amax(2, keepdim=True)", (2, 4, 6, 7), ["amax", "sub"]),
        ("self.n = nn.LayerNorm(c)", "self.n(x).mean(1)", (2, 7, 4), ["layer_norm", "mean"]),
    ],
)
def test_images_without_a_convolution(made: str, lines: str, shape: tuple[int, ...], ops: list[str]) -> None:
    text = Convolved("c", made, f"return {lines}").imported((4,), shape)
    assert [step["op"] for step in steps(text)] == ops and spec_of(text).inputs["x"][2:] == ("height", "width")[
        -len(shape) + 2 :
    ]


FLATTENED: dict[str, tuple[str, str, str, tuple[Any, ...], Any, list[str]]] = {
    "an argument": ("c, f", "self.fc = nn.Linear(f, 5)", "self.fc({})", (4, 168), "f", ["linear"]),
    "of which the original makes a number": (
        *("c", "self.n, self.fc = nn.BatchNorm1d(c * 42), nn.Linear(c * 42, 5)", "self.fc(self.n({}))"),
        *((4,), 168, ["batch_norm", "linear"]),
    ),
    "of a parameter": ("c, f", "self.w = nn.Parameter(torch.ones(f))", "{} * self.w", (4, 168), "f", ["mul"]),
    "of nothing": ("c", "", "{}.relu()", (4,), None, ["relu"]),
}


@pytest.mark.parametrize("name", FLATTENED)
def test_rows_of_all_elements(name: str) -> None:
    arguments, made, lines, values, wanted, ops = FLATTENED[name]
    source = Convolved(arguments, CONV + made, f"return {lines.format('torch.flatten(self.conv(x).tanh(), 1)')}")
    text = source.imported(values, SHAPE)
    flatten, *others = steps(text)[2:]
    assert flatten == {"op": "flatten", **({} if wanted is None else {"features": wanted})}
    assert [step["op"] for step in others] == ops
    assert spec_of(text).inputs["x"] == ("batch", values[0] if wanted == 168 else "c", "height", "width")


def test_rows_of_all_elements_of_square_images() -> None:
    source = Convolved("c", CONV + "self.fc = nn.Linear(36, 5)", "return self.fc(self.conv(x).relu().flatten(1))")
    text = source.imported((4,), (2, 4, 5, 5))
    assert steps(text)[2] == {"op": "flatten", "features": 36}


REFUSED = {
    "sizes that change": ("", "F.layer_norm(y, y.shape[1:])", "FG707", "layer_norm over sizes that change"),
    "a layer of pooled features": (
        *("self.p, self.fc = nn.MaxPool1d(2), nn.Linear(2, 5)", "self.fc(self.p(y.mean((2, 3))))"),
        *("FG707", "linear of 2 channels, which follow from other sizes"),
    ),
    "a dimension less": (
        *("self.p = nn.AdaptiveAvgPool2d((1, None))", "self.p(y).squeeze(2).relu()"),
        *("FG703", "pool"),
    ),
    "tensors of one's own": (
        *("self.w = nn.Parameter(torch.ones(c))", "F.group_norm(y, 2, self.w)"),
        *("FG706", "group_norm over positions with tensors that no nn.GroupNorm holds"),
    ),
    "another element": ("", "y.mean(2)[:, :, 1]", "FG703", "select"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    made, result, code, words = REFUSED[name]
    source = Convolved("c", CONV + made, f"y = self.conv(x)\nreturn {result}")
    with pytest.raises(SpecError) as raised:
        source.imported((4,), SHAPE)
    (found,) = raised.value.diagnostics
    assert found.code == code and words in found.message, raised.value
    assert found.location is not None and found.location.line == source.line("return")
