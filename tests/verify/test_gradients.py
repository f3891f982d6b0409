"""Finite differences of a chain that detaches something, and of one that ought to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.verify.checks.gradients import gradcheck  # noqa: E402

MODES = {(torch.float32, torch.float32): 0}
PACKAGE = SimpleNamespace(_package=SimpleNamespace(dtypes=[None, None], plain_modes=MODES))


class Original(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.scale = nn.Linear(7, 5), nn.Parameter(torch.randn(5))

    def forward(self, x, r):
        gate = torch.sigmoid(self.fc(x))
        v = gate * self.scale
        return (v - gate.detach() * r.detach()) * v.detach()


class Attached(Original):
    def forward(self, x, r):
        gate = torch.sigmoid(self.fc(x))
        v = gate * self.scale
        return (v - gate * r.detach()) * v.detach()


class Wrong(Original):
    def forward(self, x, r):
        gate = torch.sigmoid(self.fc(x))
        v = gate * self.scale
        return (v - gate.detach() * r) * v.detach()


def failed(kind: type[nn.Module]) -> set[str]:
    torch.manual_seed(0)
    original, fused = Original().double(), kind().double()
    fused.load_state_dict(original.state_dict())
    inputs = [torch.randn(3, width, dtype=torch.float64, requires_grad=True) for width in (7, 5)]
    found = gradcheck([PACKAGE], fused, inputs, original)
    assert len(found) == 2 * 5
    return {item.name.split(",")[0].removeprefix("gradcheck ") for item in found if not item.ok}


def test_what_is_detached_is_held() -> None:
    assert failed(Original) == set()


@pytest.mark.parametrize(("kind", "names"), [(Attached, {"input", "fc.weight", "fc.bias"}), (Wrong, {"input 2"})])
def test_a_gradient_through_a_detach_is_seen(kind: type[nn.Module], names: set[str]) -> None:
    assert failed(kind) == names


def test_without_a_detach_the_kernels_themselves_are_differenced() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(7, 5), nn.Tanh()).double()
    inputs = [torch.randn(3, 7, dtype=torch.float64, requires_grad=True)]
    assert all(item.ok for item in gradcheck([PACKAGE], module, inputs))
