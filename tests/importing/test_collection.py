"""The linear chains of the collection that the seeds come from, beside those that have their original in full.

Facts about public KernelBench level 2 problems: what a chain can say is imported, what it cannot is refused with the
line.
"""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from tests.importing.modules import LINEAR, Source, chain, imported

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
}
REFUSED = {
    51: (
        Source(
            "self.subtract = nn.Parameter(torch.randn(m))",
            """
            y = y - self.subtract
            y = torch.mean(y, dim=1, keepdim=True)
            y = torch.logsumexp(y, dim=1, keepdim=True)
            return F.gelu(y) + x.clone().detach()
            """,
        ),
        ("FG703", "torch.logsumexp"),
    ),
    55: (
        Source(
            "self.max_pool = nn.MaxPool1d(2)",
            "y = self.max_pool(y.unsqueeze(1)).squeeze(1)\nreturn torch.sum(y, dim=1) * 0.5",
        ),
        ("FG703", "self.max_pool(y"),
    ),
    75: (
        Source(
            "self.gn = nn.GroupNorm(4, m)\nself.bias = nn.Parameter(torch.randn(1, m, 1, 1))",
            "y = self.gn(y)\ny = torch.min(y, dim=1, keepdim=True)[0]\nreturn y + self.bias",
        ),
        ("FG705", "return y + self.bias"),
    ),
    98: (
        Source(
            "self.avg_pool = nn.AvgPool1d(4)",
            "y = self.avg_pool(y.unsqueeze(1)).squeeze(1)\nreturn torch.max(F.gelu(y) * 2.0, dim=1).values",
        ),
        ("FG703", "self.avg_pool(y"),
    ),
}


@pytest.mark.parametrize("problem", EXPRESSED)
def test_chains_of_the_catalogue(problem: int) -> None:
    source, steps = EXPRESSED[problem]
    assert LINEAR in source.text
    assert chain(imported(source)) == steps


@pytest.mark.parametrize("problem", REFUSED)
def test_the_others_are_refused_with_the_line(problem: int) -> None:
    source, (code, words) = REFUSED[problem]
    with pytest.raises(SpecError) as raised:
        imported(source)
    (found,) = raised.value.diagnostics
    assert found.code == code
    assert found.location is not None and (found.location.file, found.location.line) == ("model.py", source.line(words))
