"""The linear chains of the collection that the seeds come from, beside those that have their original in full.

Facts about public KernelBench level 2 problems.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fusegen.importing.module import from_module
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
