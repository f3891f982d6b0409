"""The linear chains of the collection that the seeds come from, beside those that have their original in full.

Facts about public KernelBench level 2 problems.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fusegen.importing.module import from_module
from fusegen.plan.load import planned_document
from fusegen.spec.yaml import parse_yaml
from tests.chains.collection import ENTRIES
from tests.importing.convolved import Convolved
from tests.importing.modules import LINEAR, Source, chain, imported, plan

pytestmark = pytest.mark.torch
EXPRESSED = {
    22: (
        Source(
            "",
            """
            y = y * 2.0
            y = y + y
            y = torch.clamp(y, -10.0, 10.0)
            y = torch.logsumexp(y, dim=1, keepdim=True)
            return y * torch.nn.functional.mish(y)
            """,
        ),
        [
            {"op": "mul", "constant": 2.0, "save": "y"},
            {"op": "add", "value": "y"},
            {"op": "clamp", "min": -10.0, "max": 10.0},
            {"op": "logsumexp", "dim": 1, "keepdim": True, "save": "v"},
            {"op": "mish"},
            {"op": "mul", "value": "v"},
        ],
    ),
    84: (
        Source(
            "self.bn = nn.BatchNorm1d(m)\nself.scale = nn.Parameter(torch.ones(1))\nself.softmax = nn.Softmax(dim=1)",
            "y = self.bn(y)\ny = self.scale * y\nreturn self.softmax(y)",
        ),
        [
            {"op": "batch_norm", "name": "bn"},
            {"op": "mul", "parameter": "scale", "shape": [1], "init": "ones"},
            {"op": "softmax", "dim": 1},
        ],
    ),
    66: (
        Source("self.dropout = nn.Dropout(0.2)", "y = self.dropout(y)\nreturn torch.softmax(y, dim=1)"),
        [{"op": "dropout", "p": 0.2}, {"op": "softmax", "dim": 1}],
    ),
    99: (
        Source("", "y = torch.nn.functional.gelu(y)\nreturn torch.nn.functional.softmax(y, dim=1)"),
        [{"op": "gelu"}, {"op": "softmax", "dim": 1}],
    ),
    75: (
        Source(
            "self.gn = nn.GroupNorm(4, m)\nself.bias = nn.Parameter(torch.randn(1, m, 1, 1))",
            "y = self.gn(y)\ny = torch.min(y, dim=1, keepdim=True)[0]\nreturn y + self.bias",
        ),
        [
            {"op": "group_norm", "name": "gn", "num_groups": 4},
            {"op": "min", "dim": 1, "keepdim": True},
            {"op": "add", "parameter": "bias", "shape": [1, "m", 1, 1], "init": "randn"},
        ],
    ),
    55: (
        Source(
            "self.max_pool = nn.MaxPool1d(2)",
            "y = self.max_pool(y.unsqueeze(1)).squeeze(1)\nreturn torch.sum(y, dim=1) * 0.5",
        ),
        [
            {"op": "max_pool1d", "name": "max_pool", "kernel_size": 2},
            {"op": "sum", "keepdim": False, "dim": 1},
            {"op": "mul", "constant": 0.5},
        ],
    ),
    98: (
        Source(
            "self.avg_pool = nn.AvgPool1d(4)",
            "y = self.avg_pool(y.unsqueeze(1)).squeeze(1)\nreturn torch.max(F.gelu(y) * 2.0, dim=1).values",
        ),
        [
            {"op": "avg_pool1d", "name": "avg_pool", "kernel_size": 4},
            {"op": "gelu"},
            {"op": "mul", "constant": 2.0},
            {"op": "max", "keepdim": False, "dim": 1},
        ],
    ),
}


@pytest.mark.parametrize("problem", EXPRESSED)
def test_chains_of_the_catalogue(problem: int) -> None:
    source, steps = EXPRESSED[problem]
    assert LINEAR in source.text
    assert chain(imported(source)) == steps


class Residual(nn.Module):
    """Problem 51, of which the result has the channels of the input."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gemm = nn.Linear(features, features)
        self.subtract = nn.Parameter(torch.randn(features))

    def forward(self, x):
        y = torch.mean(self.gemm(x) - self.subtract, dim=1, keepdim=True)
        return F.gelu(torch.logsumexp(y, dim=1, keepdim=True)) + x.clone().detach()


def test_a_value_of_each_row_beside_the_input() -> None:
    spec = plan(from_module(Residual(16), [torch.randn(6, 16)], arguments=[16])).spec
    assert [step.op for step in spec.chain] == ["linear", "sub", "mean", "logsumexp", "gelu", "add"]
    assert spec.chain[-1].detach and spec.inputs["x"] == ("batch", "features")


def _convolved(kind: str, made: str, lines: str) -> Convolved:
    """A module of problem n: `conv` or `conv_transpose` in front of layers, and forward with y as its result."""
    layer = f"self.{kind.partition('(')[0]} = nn.{kind.partition('(')[2]}"
    name = kind.partition("(")[0]
    return Convolved("in_channels, out_channels", f"{layer}\n{made}", f"y = self.{name}(x)\n{lines}")


_M = "in_channels, out_channels"
_GROUPS = "self.group_norm = nn.GroupNorm({}, out_channels)"
# Chain of kernelbench.yaml -> its layer, further ones, lines of forward behind it, and channels and positions of x.
OF_IMAGES = {
    "kb15": (
        f"conv_transpose(ConvTranspose3d({_M}, 3, stride=2, padding=1)",
        "self.batch_norm = nn.BatchNorm3d(out_channels)",
        "y = self.batch_norm(y)\nreturn y - torch.mean(y, dim=(2, 3, 4), keepdim=True)",
        (4, 3, 4, 5),
    ),
    "kb17": (
        f"conv(Conv2d({_M}, 3)",
        "self.instance_norm = nn.InstanceNorm2d(out_channels)",
        "return self.instance_norm(y) / 2.0",
        (4, 6, 7),
    ),
    "kb19": (
        f"conv_transpose(ConvTranspose2d({_M}, 3)",
        _GROUPS.format(8),
        "return self.group_norm(F.gelu(y))",
        (4, 6, 7),
    ),
    "kb24": (
        f"conv(Conv3d({_M}, 3)",
        "",
        "return torch.softmax(torch.min(y, dim=2)[0], dim=1)",
        (4, 5, 6, 7),
    ),
    "kb27": (
        f"conv(Conv3d({_M}, 4)",
        _GROUPS.format(4),
        "return torch.mean(self.group_norm(F.hardswish(y)), dim=[2, 3, 4])",
        (4, 5, 6, 7),
    ),
    "kb34": (
        f"conv_transpose(ConvTranspose3d({_M}, 4, stride=2, padding=1)",
        "self.layer_norm = nn.LayerNorm(out_channels)",
        "return F.gelu(self.layer_norm(y)) * 1.0",
        (4, 3, 5, 8),
    ),
    "kb79": (
        f"conv(Conv3d({_M}, 3)",
        "self.multiplier = nn.Parameter(torch.randn(out_channels, 1, 1, 1))\n"
        "self.instance_norm = nn.InstanceNorm3d(out_channels)",
        "y = torch.clamp(self.instance_norm(y * self.multiplier), -1.0, 1.0)\n"
        "return torch.max(y * self.multiplier, dim=1)[0]",
        (4, 5, 6, 7),
    ),
    "kb85": (
        f"conv(Conv2d({_M}, 3)",
        f"{_GROUPS.format(16)}\nself.scale, self.pool = nn.Parameter(torch.ones(out_channels, 1, 1)), nn.MaxPool2d(4)",
        "return torch.clamp(self.pool(self.group_norm(y) * self.scale), 0.0, 1.0)",
        (4, 15, 16),
    ),
    "kb92": (
        f"conv(Conv2d({_M}, 3)",
        _GROUPS.format(16),
        "return torch.logsumexp(y + F.hardswish(torch.tanh(self.group_norm(y))), dim=1, keepdim=True)",
        (4, 6, 7),
    ),
}


@pytest.mark.parametrize("name", OF_IMAGES)
def test_chains_of_images_that_were_written_by_hand(name: str) -> None:
    kind, made, lines, (channels, *positions) = OF_IMAGES[name]
    text = _convolved(kind, made, lines).imported((channels, 16), (2, channels, *positions), name=name)
    found, written = (planned_document(parse_yaml(each, name)).spec for each in (text, ENTRIES[name].text()))
    saved = {step.save: f"saved_{at}" for spec in (found, written) for at, step in enumerate(spec.chain) if step.save}
    assert [_named(step, saved) for step in found.chain] == [_named(step, saved) for step in written.chain]


def _named(step: Any, saved: dict[str, str]) -> dict[str, Any]:
    """A step with the names of saved values by the steps that they are of."""
    data = step.model_dump(exclude={"name"})
    return {key: saved.get(each, each) if isinstance(each, str) else each for key, each in data.items()}
