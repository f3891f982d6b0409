"""Under autocast, and in 16 bits, the kernels take what the graph has, and the results have its dtypes."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from tests.capture.models import PostNorm, PreNorm, Tabular  # noqa: E402
from tests.capture.test_backend import Make, step  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

MODELS = {"post": (lambda: PostNorm(13), (3, 7, 13)), "pre": (lambda: PreNorm(13), (5, 3, 13))}
MODELS |= {"tabular": (lambda: Tabular(11), (17, 11))}


def within(model: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    """The model under autocast."""

    def call(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    return call


def check(eager: nn.Module, call: Callable[..., Any], fused: nn.Module, theirs: Any, shape, dtype) -> None:
    """Over several draws the mean error is at most twice eager's, and what float32 rounds of the value. In one draw the
    roundings to 16 bits of several layers decide more than what is computed."""
    exact = copy.deepcopy(eager).double()
    mine, others, scale = (defaultdict(float) for _ in range(3))
    for _ in range(8):
        for each in (eager, exact):
            each.load_state_dict(fused.state_dict())
        x, grad = (torch.randn(shape).to(dtype) for _ in range(2))
        found = step(fused, call, x, grad)
        known = step(eager, theirs, x, grad)
        for name, wanted in step(exact, exact, x.double(), grad.double()).items():
            assert found[name].dtype == known[name].dtype, name
            for errors, each in ((mine, found[name]), (others, known[name])):
                errors[name] += (each.double() - wanted).square().sum().item()
            scale[name] += wanted.double().square().sum().item()
    for name, error in mine.items():
        assert error <= 4 * others[name] + torch.finfo(torch.float32).eps ** 2 * scale[name], name


@pytest.mark.parametrize("inside", [False, True], ids=["around", "inside"])
@pytest.mark.parametrize("name", MODELS)
def test_autocast(backend: Make, name: str, inside: bool) -> None:
    """Around the compiled model, and in the forward that is compiled."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    eager = make()
    fused, own = copy.deepcopy(eager), backend()
    call = torch.compile(within(fused), backend=own) if inside else within(torch.compile(fused, backend=own))
    check(eager, call, fused, within(eager), shape, torch.float32)
    assert own.report.taken, str(own.report)


@pytest.mark.parametrize("name", MODELS)
def test_in_bfloat16(backend: Make, name: str) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    eager = make().to(torch.bfloat16)
    fused, own = copy.deepcopy(eager), backend()
    check(eager, torch.compile(fused, backend=own), fused, eager, shape, torch.bfloat16)
    assert own.report.taken and not own.report.left, str(own.report)


def test_operands_of_both_widths(backend: Make) -> None:
    """As autocast leaves them: a residual and a number in float32, and a branch in 16 bits."""
    torch.manual_seed(0)
    x, h, alpha = torch.randn(5, 13), torch.randn(5, 13).bfloat16(), torch.rand(1)
    weight, grad, own = torch.rand(13), torch.randn(5, 13), backend()

    def call(x: Tensor, h: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.layer_norm(x + alpha * h, (13,), weight)

    found = []
    for each in (call, torch.compile(call, backend=own)):
        given = [tensor.clone().requires_grad_() for tensor in (x, h, alpha, weight)]
        y = each(*given)
        found.append((y.detach(), *torch.autograd.grad(y, given, grad)))
    for mine, wanted in zip(*found, strict=True):
        torch.testing.assert_close(mine, wanted)
    assert own.report.taken and not own.report.left, str(own.report)
