"""Graphs with an autograd.Function: chains around it are taken, and its gradient is kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.capture.test_autocast import within  # noqa: E402
from tests.capture.test_backend import Make, check, step  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


class Tripled(torch.autograd.Function):
    """No trace of the forward pass tells this gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * grad * x.cos()


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, y + 1

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        return first * 5, second * 7


class Around(nn.Module):
    """Norms in front of the functions and behind, and a value that goes around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.up = nn.LayerNorm(width), nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.first(x))
        left, right = self.up(y).chunk(2, -1)
        one, two = Pair.apply(Tripled.apply(y), y)
        return F.relu(self.second(one + two[0] + torch.cat([left, right], -1)))


def test_values_and_gradients(backend: Make) -> None:
    torch.manual_seed(0)
    eager = Around(14)
    exact, fused, own = copy.deepcopy(eager).double(), copy.deepcopy(eager), backend()
    compiled = torch.compile(fused, backend=own, fullgraph=True)
    for rows in (5, 3):
        x, grad = torch.randn(rows, 14), torch.randn(rows, 14)
        mine = step(fused, compiled, x, grad)
        check(mine, step(eager, eager, x, grad), step(exact, exact, x.double(), grad.double()))
    assert len(own.report.taken) == 2 * own.report.graphs and not own.report.left, str(own.report)


def test_modes_within_the_graph_leave_it_whole(backend: Make) -> None:
    """A part could not begin what another one ends."""
    model, own = Around(14), backend()

    torch.compile(within(model), backend=own, fullgraph=True)(torch.randn(5, 14)).sum().backward()
    assert not own.report.taken and "autograd_function_apply" in own.report.left[0].reason


def test_an_operator_of_several_results_around_a_function(backend: Make) -> None:
    model = Around(14)

    def call(x: Tensor) -> Tensor:
        parts = model.up(model.first(x)).chunk(2, -1)
        return Tripled.apply(parts[0]) * parts[1]

    x = torch.randn(5, 14)
    found = []
    for each in (call, torch.compile(call, backend=backend(), fullgraph=True)):
        found.append(torch.autograd.grad(each(x).sum(), list(model.up.parameters())))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
