"""The report says which operators PyTorch's compiler keeps, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.capture.kept import NO_OP, OF_A_LIBRARY, WITHOUT_A_NORM  # noqa: E402
from fusegen.capture.report import Report  # noqa: E402
from fusegen.capture.rewrite import Wanted, chains_in  # noqa: E402
from tests.capture.graphs import lowered  # noqa: E402

pytestmark = pytest.mark.torch


def report(call: Any, *inputs: Tensor) -> Report:
    found = Report(Path("specs"))
    chains_in(lowered(call, *inputs), found, Wanted())
    return found


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, (8,))


X = torch.randn(4, 8)
WEIGHT = torch.randn(8, 8, requires_grad=True)


def test_operators_by_their_reasons() -> None:
    def call(x: Tensor) -> Tensor:
        y = F.gelu(norm(F.scaled_dot_product_attention(x, x, x) @ WEIGHT))
        z = F.silu(y @ WEIGHT).view(8, 4).t().sigmoid()
        return F.linear(z.reshape(4, 8), WEIGHT).cumsum(0).to(torch.float64)

    assert report(call, X).kept == {
        (OF_A_LIBRARY, "scaled_dot_product_attention"): 1,
        (OF_A_LIBRARY, "matmul"): 2,
        (OF_A_LIBRARY, "linear"): 1,
        (WITHOUT_A_NORM, "silu"): 1,
        (WITHOUT_A_NORM, "sigmoid"): 1,
        (NO_OP, "cumsum"): 1,
    }


def test_what_is_told_with_a_reason_of_its_own_is_not_told_again() -> None:
    """A norm without a gradient, and one that has no kernels."""
    found = report(lambda x: F.layer_norm(F.relu(norm(x)).view(2, 2, 8), (2, 8)), X)
    assert len(found.left) == 2 and not found.kept


def test_the_text() -> None:
    found = Report(Path("specs"), graphs=2)
    assert str(found) == "2 graphs: kernels of fusegen in 0 places"
    found.kept.update([(OF_A_LIBRARY, "linear"), (NO_OP, "cat"), (OF_A_LIBRARY, "conv2d"), (OF_A_LIBRARY, "linear")])
    assert str(found).splitlines()[1:] == [
        f"  kept: linear (2 times), conv2d: {OF_A_LIBRARY}",
        f"  kept: cat: {NO_OP}",
    ]
