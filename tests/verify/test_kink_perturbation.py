"""What an element next to a kink inside a chain decides is no fault; what it does not decide is one."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.execution import compiled  # noqa: E402
from fusegen.verify.judgement.kink_perturbation import kink_tolerance  # noqa: E402

pytestmark = pytest.mark.torch
ROWS, WIDTH = 64, 48
# (row, channel) of values in front of the kink that are within rounding of it, and two that are not.
NEXT_TO_IT, BEYOND = [(3, 5), (3, 30), (40, 5)], (10, 7)


class Two(nn.Module):
    """A kink in front of a linear layer. turned: elements that get the slope of the other side, times `slope`."""

    def __init__(self, kink) -> None:
        super().__init__()
        self.kink, self.last, self.turned = kink, nn.Linear(WIDTH, WIDTH), []
        self.slope = self.factor = 1.0

    def forward(self, x):
        y = self.kink(x)
        for row, channel in self.turned:
            value = x[row, channel]
            other = self.kink(value - 2 * value.detach()) * self.slope
            y = y.index_put((torch.tensor(row), torch.tensor(channel)), other)
        return self.last(y) * self.factor


def pair(kink=F.relu):
    torch.manual_seed(0)
    original = Two(kink)
    x = torch.randn(ROWS, WIDTH)
    x[x.abs() < 1e-3] = 0.1
    for index, place in enumerate(NEXT_TO_IT):
        x[place] = 1e-7 * (1 - 2 * (index % 2))
    x[BEYOND] = 1e-3
    return copy.deepcopy(original), original, [x.requires_grad_()]


def failed(fused, original, inputs) -> list[str]:
    return [item.name for item in compare_module(fused, original, inputs) if not item.ok]


@pytest.mark.parametrize("kink", [F.relu, lambda x: F.leaky_relu(x, 0.2), torch.abs, lambda x: x.clamp(min=0.0)])
@pytest.mark.parametrize("turned", [NEXT_TO_IT[:1], NEXT_TO_IT[1:2], NEXT_TO_IT])
def test_elements_next_to_a_kink_may_have_either_slope(kink, turned) -> None:
    fused, original, inputs = pair(kink)
    assert not failed(fused, original, inputs)
    fused.turned = turned
    found = compare_module(fused, original, inputs)
    assert all(item.ok for item in found)
    notes = {item.name: item.note for item in found if "next to a kink" in item.note}
    assert "grad input" in notes and "3 values next to a kink" in notes["grad input"]


def test_without_the_runs_of_either_side_they_fail(monkeypatch) -> None:
    fused, original, inputs = pair()
    fused.turned = NEXT_TO_IT
    monkeypatch.setattr("fusegen.verify.checks.compared.kink_tolerance", lambda *args, **options: None)
    assert failed(fused, original, inputs) == ["grad input"]


def test_what_no_side_decides_fails() -> None:
    fused, original, inputs = pair()
    fused.turned = [BEYOND]
    assert {"output", "grad input"} <= set(failed(fused, original, inputs))
    fused.turned, fused.slope = NEXT_TO_IT, 3.0
    assert failed(fused, original, inputs) == ["grad input"]
    fused.slope, fused.factor = 1.0, 1.0001
    assert {"output", "grad input", "grad last.weight"} <= set(failed(fused, original, inputs))


class Shifted(Two):
    """With a bias in front of the kink, whose gradient is a sum over the rows."""

    def __init__(self, kink) -> None:
        super().__init__(kink)
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return super().forward(x + self.bias)


def test_of_two_elements_that_may_cancel_one_may_be_at_the_other_side() -> None:
    torch.manual_seed(0)
    rows = 2048
    original, x = Shifted(F.relu), torch.randn(rows, WIDTH)
    x[x.abs() < 1e-3] = 0.1
    x[3], x[40] = 1e-7, -1e-7
    fused = copy.deepcopy(original)
    fused.turned = [(3, channel) for channel in range(WIDTH)]
    found = compare_module(fused, original, [x.requires_grad_()], grad_output=torch.ones(rows, WIDTH))
    bias = next(item for item in found if item.name == "grad bias")
    assert bias.ok and "next to a kink" in bias.note


class Choice(nn.Module):
    """The largest of each row in front of a linear layer. second: rows whose second largest is chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.second = nn.Linear(WIDTH, WIDTH), []

    def forward(self, x):
        largest = x.amax(dim=-1, keepdim=True)
        for row in self.second:
            largest = largest.index_put((torch.tensor([row]),), x[row].topk(2).values[1:, None])
        return self.last(x - largest)


@pytest.mark.parametrize(("row", "right"), [(3, True), (4, False)])
def test_either_of_two_elements_that_are_about_as_large_may_be_chosen(row, right) -> None:
    torch.manual_seed(0)
    original, x = Choice(), torch.randn(ROWS, WIDTH)
    x[3, 8], x[3, 20], x[4, 8], x[4, 20] = 4.0, 4.0 - 5e-7, 4.0, 4.0 - 1e-3
    fused = copy.deepcopy(original)
    fused.second = [row]
    assert bool(failed(fused, original, [x.requires_grad_()])) != right


def test_elements_exactly_at_a_kink_stay() -> None:
    """Those of the relu of a relu are on the side that PyTorch has them on."""
    fused, original, inputs = pair(lambda x: F.leaky_relu(F.relu(x), 0.5))
    inputs[0].data[3, 5] = inputs[0].data[3, 30] = inputs[0].data[40, 5] = -1.0
    options = {"dtype": torch.float32, "train": True, "seed": 0}
    assert kink_tolerance(original, inputs, torch.ones(ROWS, WIDTH), **options) is None
    assert kink_tolerance(pair()[1], pair()[2], torch.ones(ROWS, WIDTH), **options).count == len(NEXT_TO_IT)


def test_of_sixteen_bits_nothing_is_moved() -> None:
    _, original, inputs = pair()
    options = {"dtype": torch.bfloat16, "train": True, "seed": 0}
    assert kink_tolerance(original, inputs, torch.ones(ROWS, WIDTH), **options) is None


def test_nor_of_a_run_that_was_made_in_another_way() -> None:
    """As a graph's, or one through torch.compile."""
    fused, original, inputs = pair()
    fused.turned = NEXT_TO_IT
    assert all(item.ok for item in compiled(fused, original, inputs))
    fused.turned = [BEYOND]
    assert not all(item.ok for item in compiled(fused, original, inputs))
