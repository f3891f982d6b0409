"""Imports of modules with several convolutions, layers over the channels among them, and refusals."""

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
SHAPE = (2, 4, 8, 8)  # height and width are told apart, and from 8 channels
BASIC = Convolved(
    "c, m, stride",
    """
    self.conv1 = nn.Conv2d(c, m, 3, stride=stride, padding=1, bias=False)
    self.bn1 = nn.BatchNorm2d(m)
    self.conv2 = nn.Conv2d(m, m, 3, padding=1, bias=False)
    self.bn2 = nn.BatchNorm2d(m)
    self.down = nn.Sequential(nn.Conv2d(c, m, 1, stride=stride, bias=False), nn.BatchNorm2d(m))
    self.relu = nn.ReLU(inplace=True)
    """,
    """
    identity = self.down(x)
    out = self.relu(self.bn1(self.conv1(x)))
    out = self.bn2(self.conv2(out))
    out += identity
    return self.relu(out)
    """,
)
# torchvision's CNBlock, with its stochastic depth.
CONVNEXT = Convolved(
    "dim, p",
    """
    class Permute(nn.Module):
        def __init__(self, *dims):
            super().__init__()
            self.dims = dims
        def forward(self, x):
            return torch.permute(x, self.dims)
    self.block = nn.Sequential(
        nn.Conv2d(dim, dim, 3, padding=1, groups=dim), Permute(0, 2, 3, 1), nn.LayerNorm(dim, eps=1e-6),
        nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim), Permute(0, 3, 1, 2),
    )
    self.layer_scale = nn.Parameter(torch.ones(dim, 1, 1) * 0.5)
    self.p = p
    """,
    """
    result = self.layer_scale * self.block(x)
    if self.training:
        keep = 1.0 - self.p
        noise = torch.empty([result.shape[0], 1, 1, 1], dtype=result.dtype, device=result.device)
        noise = noise.bernoulli_(keep)
        if keep > 0.0:
            noise.div_(keep)
        result = result * noise
    result += x
    return result
    """,
)


def spec_of(text: str) -> Any:
    return planned_document(parse_yaml(text, "spec.yaml")).spec


def chain(text: str) -> list[dict[str, Any]]:
    return [dict(step) for step in parse_yaml(text, "spec.yaml").data["chain"]]


def ops(text: str) -> list[str]:
    return [step["op"] for step in chain(text)]


def test_a_residual_block_with_another_way() -> None:
    text = BASIC.imported((4, 8, 2), SHAPE)
    spec = spec_of(text)
    assert spec.inputs == {"x": ("batch", "c", "height", "width")}
    assert spec.dims == {"batch": 2, "c": 4, "height": 8, "width": 8, "m": 8} and "typical: 2" in text
    first, _, _, second, saved, down, _, add, _ = chain(text)
    assert first["stride"] == down["stride"] == "stride" and "stride" not in second
    assert down["from"] == "x" and down["name"] == "down_0" and add == {"op": "add", "value": saved["save"]}
    assert spec.state_dict == {"down_0": "down.0", "down_1": "down.1"}


def test_a_bottleneck() -> None:
    """Four times as many channels are a number, so all are."""
    made = """
    self.conv1, self.bn1 = nn.Conv2d(4 * m, m, 1, bias=False), nn.BatchNorm2d(m)
    self.conv2, self.bn2 = nn.Conv2d(m, m, 3, padding=1, bias=False), nn.BatchNorm2d(m)
    self.conv3, self.bn3 = nn.Conv2d(m, 4 * m, 1, bias=False), nn.BatchNorm2d(4 * m)
    """
    lines = """
    y = F.relu(self.bn1(self.conv1(x)))
    y = F.relu(self.bn2(self.conv2(y)))
    return F.relu(self.bn3(self.conv3(y)) + x)
    """
    text = Convolved("m", made, lines).imported((3,), (2, 12, 5, 6))
    found = [step["out_channels"] for step in chain(text) if step["op"] == "conv2d"]
    assert found == [3, 3, 12] and "fixed here: m=3" in text


def test_an_inverted_residual() -> None:
    made = """
    self.conv = nn.Sequential(
        nn.Conv2d(c, m, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU6(inplace=True),
        nn.Conv2d(m, m, 3, 1, 1, groups=m, bias=False), nn.BatchNorm2d(m), nn.ReLU6(inplace=True),
        nn.Conv2d(m, c, 1, bias=False), nn.BatchNorm2d(c),
    )
    """
    text = Convolved("c, m", made, "return x + self.conv(x)").imported((4, 6), SHAPE)
    layers = [step for step in chain(text) if step["op"] == "conv2d"]
    assert [layer["out_channels"] for layer in layers] == ["m", "m", "c"] and layers[1]["groups"] == "m"


def test_layers_over_the_channels() -> None:
    text = CONVNEXT.imported((6, 0.25), (2, 6, 5, 5))
    assert ops(text) == ["conv2d", "layer_norm", "linear", "gelu", "linear", "mul", "drop_path", "add"]
    assert chain(text)[1]["dim"] == 1 and chain(text)[5]["shape"] == ["dim", 1, 1] and chain(text)[6]["p"] == 0.25
    assert spec_of(text).inputs == {"x": ("batch", "dim", "height", "width")}


def test_a_factor_where_the_channels_are_last() -> None:
    """Dropout there drops the same in any order of dimensions."""
    made = "self.conv, self.fc = nn.Conv1d(c, c, 3, padding=1), nn.Linear(c, c)"
    made += "\nself.g, self.drop = nn.Parameter(torch.ones(c)), nn.Dropout(0.25)"
    lines = "y = self.drop(F.silu(self.fc(self.conv(x).mT)))\nreturn (y * self.g).transpose(-1, 1) - x"
    text = Convolved("c", made, lines).imported((6,), (2, 6, 9))
    assert ops(text) == ["conv1d", "linear", "silu", "dropout", "mul", "sub"] and chain(text)[4]["shape"] == ["c"]


def test_steps_in_front_and_several_results() -> None:
    made = "self.bn = nn.BatchNorm2d(c)\nself.a, self.b = nn.Conv2d(c, m, 3, stride=2, padding=1), nn.Conv2d(m, m, 1)"
    lines = "y = self.a(F.relu(self.bn(x)))\nreturn y.tanh(), F.silu(self.b(y) + other)"
    text = Convolved("c, m", made, lines, "x, other").imported((4, 6), (2, 4, 7, 7), (2, 6, 4, 4))
    spec = spec_of(text)
    assert spec.inputs["other"] == ("batch", "m", "out_height", "out_width") and spec.dims["out_height"] == 4
    assert ops(text)[:3] == ["batch_norm", "relu", "conv2d"] and spec.outputs is not None and len(spec.outputs) == 2


def test_positions_of_two_kinds() -> None:
    made = "self.a, self.b = nn.Conv1d(c, c, 2, stride=2), nn.ConvTranspose1d(c, c, 2, stride=2)"
    lines = "y = F.relu(self.a(x)) + low\nreturn self.b(y) * same + x"
    spec = spec_of(Convolved("c", made, lines, "x, low, same").imported((4,), (2, 4, 10), (2, 4, 5), (2, 4, 10)))
    wanted = {"x": ("batch", "c", "width"), "low": ("batch", "c", "out_width"), "same": ("batch", "c", "width")}
    assert spec.inputs == wanted


def test_a_convolution_of_a_further_input() -> None:
    """Of its positions nothing is known but those of the example."""
    made = "self.a, self.b = nn.Conv1d(c, c, 3), nn.Conv1d(c, c, 3, stride=2)"
    text = Convolved("c", made, "return self.a(x) * self.b(y)", "x, y").imported((4,), (2, 4, 6), (2, 4, 9))
    assert chain(text)[1] == {
        "op": "conv1d",
        "from": "y",
        "name": "b",
        "out_channels": "c",
        "kernel_size": 3,
        "stride": 2,
    }


def test_a_way_that_depends_on_an_argument_fixes_it() -> None:
    made = """
    self.a, self.b = nn.Conv2d(c, m, 3, stride=stride, padding=1), nn.Conv2d(m, m, 3, padding=1)
    self.way = nn.Conv2d(c, m, 1, stride=stride) if stride != 1 or c != m else nn.Identity()
    """
    source = Convolved("c, m, stride", made, "return F.relu(self.b(self.a(x).relu()) + self.way(x))")
    assert "fixed here: stride=2" in source.imported((4, 6, 2), SHAPE)
    assert ops(source.imported((4, 4, 1), SHAPE)) == ["conv2d", "relu", "conv2d", "add", "relu"]


def test_without_the_constructor() -> None:
    text = from_module(BASIC.module(4, 8, 2), [torch.randn(SHAPE)])
    assert spec_of(text).dims == {"batch": 2, "height": 8, "width": 8} and chain(text)[0]["out_channels"] == 8


@pytest.mark.parametrize(
    "used",
    [
        "y * self.p.view(1, -1, 1, 1)",
        "y * self.p[:, None, None]",
        "y * self.p.reshape(-1, 1, 1)",
        "(y.permute(0, 2, 3, 1) * self.p).permute(0, 3, 1, 2)",
    ],
)
def test_a_parameter_of_channels_in_another_shape(used: str) -> None:
    made = "self.conv, self.p = nn.Conv2d(c, c, 1), nn.Parameter(torch.ones(c))"
    text = Convolved("c", made, f"y = self.conv(x)\nreturn {used}").imported((4,), SHAPE)
    assert chain(text)[1] == {"op": "mul", "parameter": "p", "shape": ["c"], "init": "ones", "dim": 1}


@pytest.mark.parametrize(
    ("made", "lines", "code", "words"),
    [
        (
            "",
            "y.permute(0, 2, 3, 1) * self.p",
            "FG705",
            "the result has another shape: [batch, positions, positions, 4]",
        ),
        ("self.n = nn.LayerNorm(8)", "self.n(y.transpose(1, 2))", "FG707", "layer_norm over positions"),
        ("self.d = nn.Conv1d(4, 4, 1)", "self.d(y.flatten(2)).view_as(y)", "FG707", "conv1d of a value that lies"),
        ("", "y.transpose(2, 3).flatten(1)", "FG703", "flatten"),
        ("self.d = nn.Conv2d(4, 4, 3)", "self.d(y) + y[:, :, 1:-1, 1:-1]", "FG703", "a part of a dimension"),
    ],
)
def test_refusals(made: str, lines: str, code: str, words: str) -> None:
    first = "self.conv, self.p = nn.Conv2d(c, c, 1), nn.Parameter(torch.ones(c))"
    source = Convolved("c", f"{first}\n{made}", f"y = self.conv(x)\nreturn {lines}")
    with pytest.raises(SpecError) as raised:
        source.imported((4,), SHAPE)
    (found,) = raised.value.diagnostics
    assert found.code == code and words in found.message, raised.value
    assert found.location is not None and found.location.line == source.line("return")
