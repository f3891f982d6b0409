"""Parts of a model that divide a layer's result."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fusegen  # noqa: E402


class GeGLU(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 2 * inner)

    def forward(self, x):
        value, gate = self.proj(x).chunk(2, dim=-1)
        return value * F.gelu(gate)


def test_modules_of_several_widths_have_one_spec(tmp_path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(GeGLU(8, 12), nn.Linear(12, 6), GeGLU(6, 10), nn.Linear(10, 4), nn.GLU())
    original, x = copy.deepcopy(model), torch.randn(5, 8)
    report = fusegen.fuse(model, x, directory=tmp_path, compile=False)
    found = sorted((each.path, each.spec, " ".join(each.ops)) for each in report.replaced)
    assert found == [
        ("0", "ge_glu", "linear chunk gelu mul"),
        ("2", "ge_glu", "linear chunk gelu mul"),
        ("[3:5]", "linear_glu", "linear glu"),
    ]
    spec = (tmp_path / "specs" / "ge_glu.yaml").read_text(encoding="utf-8")
    assert "2 * features" in spec
    assert all(each.saving.bytes > 0 for each in report.replaced)
    assert torch.allclose(model(x), original(x), atol=1e-6)
