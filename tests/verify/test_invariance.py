"""`rows alone`: what the check says of modules that keep the promise, and of some that do not."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fusegen.verify.checks.invariance import rows_alone  # noqa: E402

pytestmark = pytest.mark.torch
ROWS = 30


class Of(nn.Module):
    def __init__(self, forward) -> None:
        super().__init__()
        self.of = forward

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.of(*inputs)


class Slipping(torch.autograd.Function):
    """The gradient of the last row of a batch has another last bit."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        found = grad * 2
        found[-1] = found[-1].nextafter(torch.tensor(9.0))
        return found


def failed(forward, *inputs: Tensor, counted=None) -> dict[str, str]:
    found = rows_alone(Of(forward), [x.requires_grad_() for x in inputs], counted)
    assert len(found) == 5
    return {each.name: each.note for each in found if not each.ok}


def drawn(*shape: int) -> Tensor:
    torch.manual_seed(sum(shape))
    return torch.randn(shape)


def test_rows_by_themselves() -> None:
    assert failed(lambda x: x.sin() * 3, drawn(ROWS, 5)) == {}
    assert failed(lambda x, y, z: x * y + z, drawn(ROWS, 5), drawn(ROWS, 1), drawn(5)) == {}
    assert failed(lambda x: x[:, 0].tanh(), drawn(ROWS, 5)) == {}


def test_by_the_number_of_rows() -> None:
    labels = {f"{each} as in the batch" for each in ("one row", "seven", "half", "all but the first")}
    assert set(failed(lambda x: x + x.shape[0], drawn(ROWS, 5))) == labels


def test_by_the_place() -> None:
    found = failed(lambda x: x * torch.arange(1, len(x) + 1)[:, None], drawn(ROWS, 5))
    assert found["another order as in the batch"] == "output, grad input"


def test_gradients_alone() -> None:
    found = failed(Slipping.apply, drawn(ROWS, 5))
    assert found and set(found.values()) == {"grad input"}


def test_a_mean_has_a_share_of_one_for_each_row() -> None:
    assert failed(lambda x: x.exp().sum(), drawn(ROWS, 5)) == {}
    assert failed(lambda x: x.exp().sum() / len(x), drawn(ROWS, 5), counted=len) == {}
    assert failed(lambda x: x.exp().sum() / len(x), drawn(ROWS, 5))
