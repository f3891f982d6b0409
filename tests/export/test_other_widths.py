"""Exported modules whose values have other widths than the rest, beside the original: of one channel, between regions
and as a result, and multiples of a symbol."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

SPEC = """\
fusegen: 1
name: exported_widths
dims: {batch: 64, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [batch, features]}
dtypes: [float32]
chain:
  - {op: tanh, save: t}
  - {op: sum, keepdim: true, save: total}
  - {op: mul, value: t}
  - {op: linear, name: up, out_features: 2 * features}
  - {op: relu}
  - {op: mean, keepdim: true}
  - {op: sub, input: x}
outputs: [result, total]
"""


class Original(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.up = nn.Linear(features, 2 * features)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t = torch.tanh(x)
        total = t.sum(-1, keepdim=True)
        return torch.relu(self.up(total * t)).mean(-1, keepdim=True) - x, total


@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 6)])
def test_beside_the_original(shape: tuple[int, ...], exported: type[nn.Module]) -> None:
    """Results and every gradient."""
    found = []
    for module in (Original, exported):
        torch.manual_seed(3)
        made = module(6)
        x = torch.randn(shape).requires_grad_()
        results = made(x)
        torch.autograd.backward(results, [torch.randn(each.shape) for each in results])
        found.append([*results, x.grad, *(each.grad for each in made.parameters())])
    assert found[0][1].shape == (*shape[:-1], 1)
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def exported(emulated, tmp_path_factory) -> type[nn.Module]:
    spec = tmp_path_factory.mktemp("widths") / "exported_widths.yaml"
    spec.write_text(SPEC)
    (names,) = emulated.run((spec, None))
    return names["ModelNew"]
