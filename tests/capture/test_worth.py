"""Which regions Inductor has the better kernels for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.capture.partition import partition  # noqa: E402
from fusegen.capture.worth import NO_GRADIENT, PADDED, Around, obstacle  # noqa: E402
from tests.capture.graphs import lowered  # noqa: E402

pytestmark = pytest.mark.torch


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, (8,))


@pytest.mark.parametrize("is_trained", [False, True])
def test_gradients(is_trained: bool) -> None:
    graph = lowered(norm, torch.randn(4, 8, requires_grad=is_trained)).graph
    (region,) = partition(graph)
    assert obstacle(region, Around.of(graph, {})) == (None if is_trained else NO_GRADIENT)


@pytest.mark.parametrize(("width", "is_padded"), [(1000, False), (1024, False), (1030, True), (1056, False)])
def test_rows_that_are_padded(width: int, is_padded: bool) -> None:
    """Of more than 1024 elements, and no multiple of 128 bytes."""
    graph = lowered(lambda x: F.layer_norm(x, (width,)), torch.randn(4, width, requires_grad=True)).graph
    (region,) = partition(graph)
    assert obstacle(region, Around.of(graph, {})) == (PADDED if is_padded else None)
