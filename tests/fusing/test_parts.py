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


class Dropped(nn.Module):
    """A dropout that is a module, and one that is not."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc, self.drop = nn.Linear(width, width), nn.Dropout(0.25)

    def forward(self, x, r):
        return F.dropout(self.drop(torch.relu(self.fc(x))), 0.5, self.training) + r


def test_dropouts_have_the_modes_of_the_model(tmp_path) -> None:
    torch.manual_seed(0)
    model = Dropped(8)
    original, inputs = copy.deepcopy(model), [torch.randn(5, 8), torch.randn(5, 8)]
    report = fusegen.fuse(model, inputs, directory=tmp_path, compile=False)
    assert [each.ops for each in report.replaced] == [("linear", "relu", "dropout", "dropout", "add")]
    (region,) = model._fusegen_regions
    for mode in (True, False):
        model.train(mode), original.train(mode)
        assert region.fusegen_obstacle(tuple(inputs)) is None
        assert [part.training for part in region.children() if isinstance(part, nn.Dropout)] == [mode, mode]
        found = []
        for each in (model, original):
            torch.manual_seed(1)
            found.append(each(*inputs))
        assert torch.equal(*found)


class Later(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(width, 2 * width), nn.LayerNorm(width)

    def forward(self, x):
        a, b = torch.tanh(self.fc(x)).chunk(2, -1)
        return self.norm(a * b) + x


@pytest.mark.parametrize("model, width", [(Later(8), 8), (nn.Sequential(nn.GLU(), nn.LayerNorm(4)), 8)])
def test_parts_of_other_values_have_widths_as_numbers(model: nn.Module, width: int, tmp_path) -> None:
    original, x = copy.deepcopy(model), torch.randn(5, width)
    report = fusegen.fuse(model, x, directory=tmp_path, compile=False)
    (found,) = report.replaced
    assert f"x: [batch, {width}]" in (tmp_path / "specs" / f"{found.spec}.yaml").read_text(encoding="utf-8").replace(
        "input:", "x:"
    )
    assert torch.allclose(model(x), original(x), atol=1e-6)
