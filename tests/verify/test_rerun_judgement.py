"""What is made of a result beyond the bound of one run of eager PyTorch."""

from __future__ import annotations

import copy
import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.verify.checks.compared import compare_module, compare_runs  # noqa: E402
from fusegen.verify.judgement.policy import Comparison, Error  # noqa: E402
from fusegen.verify.judgement.rerun_judgement import judge_by_reruns, most  # noqa: E402
from fusegen.verify.references.reference import reference  # noqa: E402
from fusegen.verify.runs.run import draw_gradient, run  # noqa: E402

SEEDS = range(12)


class TwoRows(nn.Module):
    """Two batch norms: of two rows, each leaves the sign of their difference, and little of its size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.bn1, self.second, self.bn2 = (
            *(nn.Linear(24, 24), nn.BatchNorm1d(24)),
            *(nn.Linear(24, 24), nn.BatchNorm1d(24)),
        )

    def forward(self, x):
        return self.bn2(self.product(self.second, F.relu(self.bn1(self.product(self.first, x)))))

    def product(self, layer, x):
        return layer(x)


class InTwoHalves(TwoRows):
    """With the sums of the products in another order."""

    def product(self, layer, x):
        halves = zip(x.split(12, -1), layer.weight.split(12, -1), strict=True)
        return sum(part @ weight.T for part, weight in halves) + layer.bias


class Scaled(InTwoHalves):
    def forward(self, x):
        return super().forward(x) * 1.001


def pair(cls, seed):
    torch.manual_seed(seed)
    original = TwoRows()
    other = cls()
    other.load_state_dict(original.state_dict())
    return other, original, [torch.randn(2, 24, requires_grad=True)]


def failed(found) -> list[str]:
    return [item.name for item in found if not item.ok]


def test_another_order_of_the_sums_passes_where_one_run_tells_too_little() -> None:
    alone = []
    for seed in SEEDS:
        other, original, inputs = pair(InTwoHalves, seed)
        assert not failed(compare_module(other, original, inputs, seed=seed))
        grad = draw_gradient(original, inputs, seed=seed)
        runs = [run(copy.deepcopy(each), inputs, grad) for each in (other, original)]
        alone += failed(compare_runs(*runs, reference(original, inputs, grad), torch.float32))
    assert alone


def test_a_wrong_result_fails_all_the_same() -> None:
    for seed in SEEDS:
        assert "output" in failed(compare_module(*pair(Scaled, seed), seed=seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_how_far_the_second_judgement_goes(dtype) -> None:
    first = Comparison("output", Error(3.0, 3.0), Error(0.4, 0.4), Error(1.0, 1.0), False)
    second = Comparison("output", Error(3.0, 3.0), Error(1.6, 1.6), Error(4.0, 4.0), True)
    assert judge_by_reruns(first, second, dtype).ok and judge_by_reruns(first, second, dtype).bound == second.bound
    # Of values on the other side of a kink.
    second = Comparison("output", first.fused, Error(math.inf, math.inf), Error(math.inf, math.inf), True)
    factor = most(dtype)
    assert judge_by_reruns(first, second, dtype).bound == Error(factor, factor)
    beyond = Comparison("output", Error(1.5 * factor, 1.5), Error(0.4, 0.4), Error(1.0, 1.0), False)
    assert not judge_by_reruns(beyond, second, dtype).ok
    statement = Comparison.statement("dtypes", False)
    assert judge_by_reruns(statement, statement, dtype) is statement
