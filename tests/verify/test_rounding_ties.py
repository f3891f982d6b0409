"""The bound of products of rounded operands where a few elements are most of the gradient that comes to one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.verify.checks import precisions  # noqa: E402
from fusegen.verify.judgement.rounding_ties import MOST, rounding_distances  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, WIDTH, CHANNELS = 24, 40, 32
BETWEEN = 1 + 2**-11  # two neighbours of float16


class OfLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, CHANNELS)

    def forward(self, x):
        return self.fc(x).amin(-1)


class OfOwnWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(CHANNELS, WIDTH))

    def forward(self, x):
        return nn.functional.linear(x, self.weight).amin(-1)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, off):
        ctx.off = off
        return x.view_as(x)

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0] * (1 - ctx.off), None


class Fused(nn.Module):
    """Multiplies operands as rounded as they ought to be; the gradient that comes to the product is off."""

    def __init__(self, original, off: float) -> None:
        super().__init__()
        self.off = off
        for name, parameter in original.named_parameters():
            owner, _, leaf = name.rpartition(".")
            if owner and not hasattr(self, owner):
                self.add_module(owner, nn.Module())
            (self.get_submodule(owner) if owner else self).register_parameter(leaf, nn.Parameter(parameter.detach()))

    def forward(self, x):
        parameters = dict(self.named_parameters())
        weight = next(each for name, each in parameters.items() if name.endswith("weight"))
        product = precisions._RoundedProduct.apply(x, weight, precisions.ROUNDED[self.fusegen_precision])
        return (Scaled.apply(product, self.off) + parameters.get("fc.bias", 0.0)).amin(-1)


def wrong(monkeypatch, make, off: float, value: float) -> set[str]:
    """What falls short in float16, where one row's gradient has that value and the others' are small."""
    monkeypatch.setattr(precisions, "ROUNDED", {"fp16": torch.float16})

    def draw(module, inputs, *, train):
        grad = torch.full((ROWS,), 2.0**-8)
        grad[0] = value
        return grad

    monkeypatch.setattr(precisions, "draw_gradient", draw)
    torch.manual_seed(3)
    original, x = make(), torch.randn(ROWS, WIDTH, requires_grad=True)
    return {item.name for item in precisions.rounded_operands(Fused(original, off), original, [x]) if not item.ok}


@pytest.mark.parametrize("make", [OfLayer, OfOwnWeight])
def test_an_element_next_to_a_tie_may_turn(monkeypatch, make) -> None:
    assert not wrong(monkeypatch, make, 3e-7, BETWEEN + 2**-22)
    assert not wrong(monkeypatch, make, 0.0, BETWEEN + 2**-22)


@pytest.mark.parametrize("make", [OfLayer, OfOwnWeight])
def test_one_that_is_farther_from_a_tie_may_not(monkeypatch, make) -> None:
    weight = "fc.weight" if make is OfLayer else "weight"
    expected = {f"fp16, {mode}: grad {name}" for mode in ("train", "eval") for name in ("input", weight)}
    assert expected <= wrong(monkeypatch, make, 4e-6, BETWEEN + 2**-19)


def test_of_which_elements_another_rounding_is_right() -> None:
    exact = torch.tensor([1.0, BETWEEN, -BETWEEN, BETWEEN * (1 + 1e-5), 1e9, 0.0], dtype=torch.float64)
    assert rounding_distances(exact.float(), exact, torch.float16).tolist() == [0, 2**-10, 2**-10, 0, 0, 0]
    wide = exact[:4]
    far = rounding_distances(wide * 1.5, wide, torch.float16)
    assert far.tolist() == rounding_distances(wide * 3, wide, torch.float16).tolist()  # however wrong eager PyTorch is
    assert float(far.max()) <= 2**-10 * (1 + 2 * MOST)


def test_nothing_turns_where_no_gradient_came() -> None:
    rounding = precisions.Rounding(torch.float16)
    assert rounding.ties(None) == () and rounding.ties(torch.ones(2, 2)) == ()
