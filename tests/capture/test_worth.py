"""Which regions Inductor has the better kernels for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.capture.partition import partition  # noqa: E402
from fusegen.capture.worth import CAST_BEHIND, NO_GRADIENT, obstacle, with_gradients  # noqa: E402
from tests.capture.graphs import lowered  # noqa: E402

pytestmark = pytest.mark.torch
WEIGHT = torch.ones(8, 8)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, (8,))


def verdicts(call: Callable[..., Any], x: Tensor) -> list[str | None]:
    def under_autocast(x: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return call(x)

    graph = lowered(under_autocast, x).graph
    trained = with_gradients(graph)
    return [obstacle(region, trained) for region in partition(graph)]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: norm(x) @ WEIGHT,
        lambda x: norm(x).view(2, 2, 8).transpose(1, 2) @ WEIGHT[:2, :2],
        lambda x: [part @ WEIGHT[:4] for part in norm(x).chunk(2, -1)],
        lambda x: F.silu(norm(x) * 2) @ WEIGHT,
    ],
    ids=["product", "layouts", "parts", "tail"],
)
def test_a_result_that_is_cast_by_all(call: Callable[..., Any]) -> None:
    assert verdicts(call, torch.randn(4, 8, requires_grad=True)) == [CAST_BEHIND]


def residual(x: Tensor) -> Tensor:
    y = norm(x)
    return y + y @ WEIGHT


def one_of_two(x: Tensor) -> Tensor:
    left, right = norm(x).chunk(2, -1)
    return left @ WEIGHT[:4] + right.sum()


@pytest.mark.parametrize("call", [norm, residual, one_of_two, lambda x: norm(x).view(2, 16).sin()])
def test_a_result_that_is_needed_in_float32(call: Callable[..., Any]) -> None:
    assert verdicts(call, torch.randn(4, 8, requires_grad=True)) == [None]


def test_one_result_of_two_is_cast() -> None:
    def call(x: Tensor) -> Tensor:
        total = x * 2 + 1
        return total + norm(total) @ WEIGHT

    assert verdicts(call, torch.randn(4, 8, requires_grad=True)) == [CAST_BEHIND]


def test_without_gradients() -> None:
    assert verdicts(norm, torch.randn(4, 8)) == [NO_GRADIENT]
