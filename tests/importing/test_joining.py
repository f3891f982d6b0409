"""Imports of modules that join the channels of values."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.spec.yaml import parse_yaml
from tests.importing.convolved import Convolved

pytestmark = pytest.mark.torch


def steps(made: str, lines: str, *shapes: tuple[int, ...], inputs: str = "x", values: tuple = (4, 6)) -> list[dict]:
    text = Convolved("c, k", made, lines, inputs=inputs).imported(values, *shapes)
    return [dict(step) for step in parse_yaml(text, "spec.yaml").data["chain"]]


def test_branches() -> None:
    made = "self.one, self.two = nn.Conv2d(c, k, 1), nn.Conv2d(c, k, 3, padding=1)"
    found = steps(made, "return torch.cat((F.relu(self.one(x)), F.silu(self.two(x))), 1)", (2, 4, 9, 8))
    assert [step["op"] for step in found] == ["conv2d", "relu", "conv2d", "silu", "cat"]
    *_, silu, cat = found
    assert cat == {"op": "cat", "from": found[1]["save"], "values": [silu["save"]], "dim": 1}


def test_an_input_of_other_channels() -> None:
    made = "self.conv, self.norm = nn.Conv2d(c + k, c, 3), nn.BatchNorm2d(c + k)"
    lines = "y = torch.cat([torch.tanh(x), skip], dim=1)\nreturn F.relu(self.conv(F.gelu(self.norm(y))))"
    tanh, cat, *_ = steps(made, lines, (2, 4, 9, 8), (2, 6, 9, 8), inputs="x, skip")
    assert tanh == {"op": "tanh"} and cat == {"op": "cat", "values": ["skip"], "dim": 1, "channels": 10}


def test_growth() -> None:
    """As a layer of a DenseNet: what a layer has made comes behind what it has taken."""
    made = "self.norm, self.conv = nn.BatchNorm2d(c), nn.Conv2d(c, k, 3, padding=1, bias=False)"
    lines = "y = torch.concat([x, self.conv(F.relu(self.norm(x)))], 1)\nreturn F.relu(y)"
    found = steps(made, lines, (2, 4, 9, 8))
    assert [step["op"] for step in found] == ["batch_norm", "relu", "conv2d", "cat", "relu"]
    assert found[3] == {"op": "cat", "from": "x", "values": [found[2]["save"]], "dim": 1}


def test_images_that_nothing_else_tells_of() -> None:
    relu, cat, tanh = steps("", "return torch.tanh(torch.cat([F.relu(x), x], 1))", (2, 4, 9, 8))
    assert cat == {"op": "cat", "values": ["x"], "dim": 1} and (relu["op"], tanh["op"]) == ("relu", "tanh")


def test_rows() -> None:
    made = "self.fc, self.head = nn.Linear(c, k), nn.Linear(c + k, 3)"
    lines = "return torch.relu(self.head(torch.tanh(torch.cat([torch.relu(self.fc(x)), x], -1))))"
    found = steps(made, lines, (5, 4))
    assert [step["op"] for step in found] == ["linear", "relu", "cat", "tanh", "linear", "relu"]
    assert found[2] == {"op": "cat", "values": ["x"], "channels": 10}


def test_unequal_parts() -> None:
    made = "self.fc, self.head = nn.Linear(c, 10), nn.Linear(k, 4)"
    lines = "a, b = self.fc(x).split([4, 6], -1)\nreturn torch.tanh(a) * torch.sigmoid(self.head(F.gelu(b)))"
    found = [step for step in steps(made, lines, (5, 4)) if step["op"] == "narrow"]
    assert [(step["start"], step["length"]) for step in found] == [(0, 4), (4, "k")]


@pytest.mark.parametrize(
    ("part", "start", "length"),
    [("y[:, 2:5]", 2, 3), ("y[:, -2:]", 4, 2), ("y.narrow(1, 1, 4)", 1, 4), ("y.split(4, 1)[1]", 4, 2)],
)
def test_some_channels(part, start, length) -> None:
    made, lines = "self.conv = nn.Conv2d(c, k, 3)", f"y = F.relu(self.conv(x))\nreturn torch.tanh({part})"
    *_, narrow, tanh = steps(made, lines, (2, 4, 9, 8))
    assert narrow == {"op": "narrow", "start": start, "length": length, "dim": 1} and tanh == {"op": "tanh"}


def test_one_channel_that_a_reduction_has_left() -> None:
    """As of a spatial attention, or beside all channels."""
    made = "self.conv, self.gate = nn.Conv2d(c, k, 3), nn.Conv2d(2, 1, 5, padding=2)"
    joined = "torch.cat([y.mean(1, keepdim=True), y.max(1, keepdim=True)[0]], 1)"
    found = steps(made, f"y = self.conv(x)\nreturn y * torch.sigmoid(self.gate({joined}))", (2, 4, 9, 8))
    assert [step["op"] for step in found] == ["conv2d", "mean", "max", "cat", "conv2d", "sigmoid", "mul"]
    assert (found[3]["dim"], found[3]["channels"]) == (1, 2)
    lines = "y = self.conv(x)\nreturn torch.tanh(torch.cat([y, y.mean(1, keepdim=True)], 1))"
    found = steps("self.conv = nn.Conv2d(c, k, 3)", lines, (2, 4, 9, 8))
    assert [step["op"] for step in found] == ["conv2d", "mean", "cat", "tanh"]


@pytest.mark.parametrize(
    ("joined", "message"),
    [
        ("torch.cat([y, y], 2)", "cat of other dimensions"),
        ("torch.cat([y, self.gate.expand(2, -1, 7, 6)], 1)", "cat of other dimensions"),
        ("y[:, :, 1:]", "a part of a dimension of rows or positions"),
    ],
)
def test_what_is_refused(joined: str, message: str) -> None:
    lines = f"y = F.relu(self.conv(x))\nreturn torch.tanh({joined})"
    with pytest.raises(SpecError, match=message):
        steps("self.conv, self.gate = nn.Conv2d(c, k, 3), nn.Parameter(torch.ones(1, 1, 1, 1))", lines, (2, 4, 9, 8))
