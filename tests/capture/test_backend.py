"""Models under torch.compile with fusegen's backend compute what they compute without it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from fusegen.backend import Backend  # noqa: E402
from tests.capture.models import (  # noqa: E402
    Broken,
    Diffusion,
    Frozen,
    Modulated,
    PostNorm,
    PreNorm,
    Residual,
    Standardized,
    Tabular,
)

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

Make = Callable[..., Backend]

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "residual": (lambda: nn.Sequential(Residual(6), Residual(6)), (3, 6, 7, 5), 4),
    "diffusion": (lambda: Diffusion(6), (3, 6, 7, 5), 3),
    "post": (lambda: PostNorm(13), (3, 7, 13), 1),
    "pre": (lambda: PreNorm(13), (5, 3, 13), 2),
    "modulated": (lambda: Modulated(13), (3, 7, 13), 2),
    "standardized": (lambda: Standardized(6), (3, 6, 7, 5), 2),
    "tabular": (lambda: Tabular(11), (17, 11), 3),
    "broken": (lambda: Broken(13), (2, 5, 13), 2),
    "frozen": (lambda: Frozen(13), (2, 5, 13), 1),
}


def step(model: nn.Module, call: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor) -> dict[str, Tensor]:
    """The result of a training step, its gradients, and the buffers behind it."""
    model.zero_grad()
    x = x.detach().requires_grad_()
    y = call(x)
    y.backward(grad.to(y.dtype))
    found = {"result": y.detach()} | ({} if x.grad is None else {"x": x.grad})
    found |= {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return found | {name: each.clone() for name, each in model.named_buffers()}


def check(mine: dict[str, Tensor], eager: dict[str, Tensor], exact: dict[str, Tensor]) -> None:
    """Each error is at most twice eager's, plus what float32 rounds: more in a sum of many terms, whose order may be a
    lucky one of eager's."""
    assert mine.keys() == eager.keys() == exact.keys()
    for name, wanted in exact.items():
        terms = max(exact["result"].numel() / max(wanted.numel(), 1), 1)
        ulps = 8 * terms**0.5 * torch.finfo(torch.float32).eps * wanted.double().abs().max()
        allowed = 2 * (eager[name].double() - wanted).abs().max() + ulps
        assert mine[name].dtype == eager[name].dtype and mine[name].stride() == eager[name].stride(), name
        assert (mine[name].double() - wanted).abs().max() <= allowed, name


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", MODELS)
def test_against_double_precision(backend: Make, name: str, training: bool) -> None:
    make, shape, count = MODELS[name]
    torch.manual_seed(0)
    eager = make().train(training)
    exact, fused = copy.deepcopy(eager).double(), copy.deepcopy(eager)
    own = backend()
    compiled = torch.compile(fused, backend=own)
    for _ in range(2):
        x = torch.randn(shape)
        grad = torch.randn(eager(x).shape)
        with torch.no_grad():  # that call has moved the statistics
            fused.load_state_dict(eager.state_dict())
            exact.load_state_dict(eager.state_dict())
        mine = step(fused, compiled, x, grad)
        check(mine, step(eager, eager, x, grad), step(exact, exact, x.double(), grad.double()))
    assert len(own.report.taken) == count, str(own.report)


def test_the_same_bits_in_each_run(backend: Make) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Residual(6), Residual(6))
    compiled = torch.compile(model, backend=backend())
    x, grad = torch.randn(3, 6, 7, 5), torch.randn(3, 6, 7, 5)
    state = copy.deepcopy(model.state_dict())
    first = step(model, compiled, x, grad)
    model.load_state_dict(state)
    again = step(model, compiled, x, grad)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_any_number_of_rows(backend: Make) -> None:
    """Of a model and of one kind of chain: the second size is compiled for all."""
    torch.manual_seed(0)
    model = Tabular(11)
    own = backend()
    compiled = torch.compile(model, backend=own)
    for rows in (4, 7, 5, 9):
        x = torch.randn(rows, 11)
        torch.testing.assert_close(compiled(x), copy.deepcopy(model)(x))
    assert own.report.graphs == 2 and len({each.spec for each in own.report.taken}) == 1


def test_without_gradients_the_rest_has_all(backend: Make) -> None:
    model, own = Tabular(11).eval(), backend()
    with torch.no_grad():
        torch.compile(model, backend=own)(torch.randn(4, 11))
    assert not own.report.taken and {each.reason for each in own.report.left} == {
        "no gradient flows through it, and PyTorch's compiler fuses a forward pass as well"
    }


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_chosen_without_gradients(backend: Make, mode: Any) -> None:
    model, own = Tabular(11).eval(), backend(choose="all")
    x = torch.randn(4, 11)
    with mode():
        torch.testing.assert_close(torch.compile(model, backend=own)(x), model(x))
    assert len(own.report.taken) == 3


def test_frozen_parameters(backend: Make) -> None:
    torch.manual_seed(0)
    model = PostNorm(13)
    model.norm.requires_grad_(False)
    other = copy.deepcopy(model)
    x, grad = torch.randn(3, 7, 13), torch.randn(3, 7, 13)
    mine = step(model, torch.compile(model, backend=backend()), x, grad)
    for name, wanted in step(other, other, x, grad).items():
        torch.testing.assert_close(mine[name], wanted, msg=name)


def test_a_dropout_drops_the_same_in_both_passes(backend: Make) -> None:
    """Before the norm: what is dropped gets no gradient."""
    torch.manual_seed(0)
    model, own = PostNorm(13, p=0.5), backend()
    dropped = []

    class Known(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            dropped.append(grad == 0)
            return grad

    def call(h: Tensor, x: Tensor) -> Tensor:
        return model.norm(x + model.drop(h))

    compiled = torch.compile(call, backend=own)
    h, x = torch.randn(64, 13, requires_grad=True), torch.zeros(64, 13)
    y = compiled(Known.apply(h), x)
    y.backward(torch.randn(64, 13))
    assert len(own.report.taken) == 1 and 0.3 < dropped[0].float().mean() < 0.7
    # What was dropped is zero in front of the norm: all such elements of a row have one value behind it.
    weight, bias = model.norm.weight, model.norm.bias
    plain = (y - bias) / weight
    for row, gone in zip(plain, dropped[0], strict=True):
        if gone.any():
            torch.testing.assert_close(row[gone], row[gone][:1].expand(int(gone.sum())), rtol=1e-5, atol=1e-5)
    again = compiled(h, x)
    assert not torch.equal(again, y)
