"""Linear layers in the precision fp32_split: which products are taken, and what the model then computes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.capture.products import NOT_WORTH, is_worth, products, write_products  # noqa: E402
from fusegen.capture.worth import with_gradients  # noqa: E402
from tests.capture.graphs import lowered  # noqa: E402
from tests.capture.test_autocast import within  # noqa: E402
from tests.capture.test_backend import Make, check, step  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]
X, WEIGHT, BIAS = torch.randn(6, 8), torch.randn(8, 5), torch.randn(5)


def shapes(call: Callable[..., Any], x: Tensor = X) -> list[tuple[Any, ...]]:
    graph = lowered(call, x).graph
    write_products(graph)
    return [region.frame.sizes for region in products(graph)]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.linear(x, WEIGHT.T, BIAS),
        lambda x: F.linear(x, WEIGHT.T),
        lambda x: x @ WEIGHT,
        lambda x: torch.mm(x, WEIGHT),
        lambda x: torch.addmm(BIAS, x, WEIGHT),
        lambda x: x.view(2, 3, 8) @ WEIGHT,
    ],
)
def test_what_is_a_linear_layer(call: Callable[..., Any]) -> None:
    (sizes,) = shapes(call)
    assert sizes[-1] == 5


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.view(2, 3, 8) @ x.view(2, 8, 3),
        lambda x: torch.addmm(BIAS, x, WEIGHT, alpha=2),
        lambda x: torch.addmm(torch.ones(6, 5), x, WEIGHT),
        lambda x: x[0] @ WEIGHT,
        lambda x: x.bfloat16() @ WEIGHT.bfloat16(),
        lambda x: x.double() @ WEIGHT.double(),
    ],
    ids=["batches", "alpha", "matrix added", "vector", "bfloat16", "float64"],
)
def test_what_is_none(call: Callable[..., Any]) -> None:
    assert not shapes(call)


def test_under_autocast_there_is_none() -> None:
    assert not shapes(within(lambda x: F.linear(x, WEIGHT.T, BIAS)))


@pytest.mark.parametrize(("size", "worth"), [(64, False), (4096, True)])
def test_small_products_stay(size: int, worth: bool) -> None:
    with torch.device("meta"):
        x, weight = torch.empty(size, size), torch.empty(size, size)
    graph = lowered(lambda x: F.linear(x, weight), x).graph
    (region,) = products(graph)
    assert is_worth(region, with_gradients(graph), ["sm_90"]) == worth


class Convolved(nn.Module):
    """As GPT-2 has it: an addmm with the weight [in, out], and a tail."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(width, 2 * width)), nn.Parameter(torch.randn(2 * width))
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return self.down(F.gelu(wide)).view_as(x)


def test_values_and_gradients(backend: Make) -> None:
    torch.manual_seed(0)
    eager = Convolved(24)
    exact, fused = copy.deepcopy(eager).double(), copy.deepcopy(eager)
    own = backend(precision="fp32_split", choose="all")
    compiled = torch.compile(fused, backend=own)
    for shape in ((5, 7, 24), (3, 7, 24)):
        x, grad = torch.randn(shape), torch.randn(shape)
        check(
            step(fused, compiled, x, grad),
            step(eager, eager, x, grad),
            step(exact, exact, x.double(), grad.double()),
        )
    assert [each.ops for each in own.report.taken][:2] == [("linear",)] * 2, str(own.report)


def test_the_report_says_what_is_too_small(backend: Make) -> None:
    own = backend(precision="fp32_split")
    torch.compile(nn.Linear(24, 24), backend=own)(torch.randn(5, 24))
    assert [each.reason for each in own.report.left] == [NOT_WORTH], str(own.report)
