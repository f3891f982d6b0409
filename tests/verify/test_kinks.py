"""Which elements are near a kink or a jump, and what of an output is left out for it."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.judgement.policy import compare  # noqa: E402
from fusegen.verify.references.reference import reference  # noqa: E402
from fusegen.verify.runs.kinks import Kinks  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("step", "kinks"),
    [
        (torch.relu, [0.0]),
        (lambda v: torch.nn.functional.leaky_relu(v, 0.1), [0.0]),
        (torch.nn.Hardtanh(), [-1.0, 1.0]),
        (torch.nn.Hardtanh(min_val=-2.0, max_val=2.0), [-2.0, 2.0]),
        (lambda v: torch.min(v, torch.tensor(0.5)), [0.5]),
        (lambda v: v.clamp(min=0.25), [0.25]),
        (torch.nn.functional.mish, []),
        (torch.nn.functional.relu6, [0.0, 6.0]),
        (torch.nn.functional.hardswish, [-3.0, 3.0]),
        (torch.nn.PReLU(), [0.0]),
        (torch.abs, [0.0]),
        (lambda v: torch.nn.functional.threshold(v, 0.75, 2.0), [0.75]),
        (torch.nn.Softshrink(), [0.5, -0.5]),
        (lambda v: torch.nn.functional.hardshrink(v, 1.25), [1.25, -1.25]),
        (torch.log1p, [-1.0]),
    ],
)
def test_kinks_are_found(step, kinks):
    values = torch.linspace(-3, 3, 601)  # no kink among them but 0, +-1, +-2
    values = torch.cat((values[(values.abs() * 4 % 1 - 0.5).abs() < 0.45], torch.tensor(kinks))).detach()
    with Kinks(torch.float32) as found:
        step(values[None])
    near = [] if found.near is None else values[found.near[0]].tolist()
    assert near == pytest.approx(kinks)


@pytest.mark.parametrize(
    ("step", "kinks"), [(torch.floor, [-2.0, 0.0, 1.0]), (torch.round, [-1.5, 2.5]), (torch.tan, [-math.pi / 2])]
)
def test_kinks_that_repeat_are_found(step, kinks):
    values = torch.cat((torch.linspace(-3, 3, 24), torch.tensor(kinks), torch.tensor(kinks) + 1e-3))
    values = values[values.abs() < 2.9]
    with Kinks(torch.float32) as found:
        step(values[None])
    assert values[found.near[0]].tolist() == pytest.approx(kinks)


def below(value: float) -> float:
    return torch.nextafter(torch.tensor(value), torch.tensor(-math.inf)).item()


class _Of(torch.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x) + x


@pytest.mark.parametrize(
    ("step", "at"),
    [
        (torch.floor, below(1.0)),
        (torch.round, below(3.5)),
        (torch.sign, below(0.0)),
        (lambda x: torch.nn.functional.hardshrink(x, 1.0), below(-1.0)),
        (lambda x: torch.nn.functional.threshold(x, 1.0, -3.0), 1.0),
    ],
)
def test_either_side_of_a_jump_is_right(step, at):
    x = torch.tensor([[at, 0.3, -0.7, 2.2]])
    other = _Of(lambda x: step(torch.nextafter(x, torch.tensor(math.inf))))
    assert (step(x) - other(x) + x).abs().max() > 0.5
    assert all(item.ok for item in compare_module(other, _Of(step), [x]))
    wrong = _Of(lambda x: step(x) + 1e-3)
    assert not all(item.ok for item in compare_module(wrong, _Of(step), [x]))


@pytest.mark.parametrize("op", ["max", "min", "amax", "amin"])
def test_rows_in_which_two_elements_may_be_chosen_are_found(op):
    sign = 1 if "max" in op else -1
    rows = sign * torch.tensor([[3.0, 1.0, 3.0 + 1e-6], [3.0, 2.0, 2.0], [-1.0, -1.0, -2.0], [5.0, math.nan, 5.1]])
    with Kinks(torch.float32) as found:
        getattr(rows, op)(dim=-1, keepdim=True)
    assert found.near is not None and found.near.shape == rows.shape
    assert found.near.all(1).tolist() == found.near.any(1).tolist() == [True, False, True, False]


class _Scaled(torch.nn.Module):
    """floor of x times a factor; beyond `wrong`, a value that is off by 3."""

    def __init__(self, factor: float, wrong: float = math.inf) -> None:
        super().__init__()
        self.factor, self.wrong = factor, wrong

    def forward(self, x):
        return torch.floor(x * self.factor) + 3 * (x > self.wrong)


def output_of(results):
    return next(item for item in results if item.name == "output")


def test_an_output_of_which_most_is_left_out_is_not_accepted():
    """An ulp of bfloat16 at 100 is near one of the whole numbers wherever the value is."""
    torch.manual_seed(0)
    x = torch.randn(32, 16, dtype=torch.bfloat16)
    found = output_of(compare_module(_Scaled(100.0), _Scaled(100.0), [x]))
    assert not found.ok and found.left_out > 0.5 and "of 512 values left out, near a jump" in found.note
    found = output_of(compare_module(_Scaled(1.0), _Scaled(1.0), [x]))
    assert found.ok and 0 < found.left_out < 0.3
    assert not output_of(compare_module(_Scaled(1.0, 1.3), _Scaled(1.0), [x])).ok
    found = output_of(compare_module(_Scaled(100.0), _Scaled(100.0), [x.float()]))
    assert found.ok and found.left_out < 0.02


def test_half_may_be_left_out_and_few_may_all_be():
    value, arguments = torch.zeros(64), {"dtype": torch.float32, "reduction_length": 1}
    for count in (0, 32, 33):
        left_out = torch.arange(64) < count
        found = compare("a", value, value, value.double(), left_out=left_out, **arguments)
        assert found.ok == (count < 33) and found.left_out == count / 64 and bool(found.note) == bool(count)
    assert compare("a", value[:3], value[:3], value[:3].double(), left_out=value[:3] == 0, **arguments).ok


def test_what_is_left_out_may_be_no_number_and_nothing_else_may():
    eager = torch.tensor([1.0, 2.0, 3.0])
    arguments = {"dtype": torch.float32, "reduction_length": 1, "left_out": torch.tensor([False, True, False])}
    assert compare("a", torch.tensor([1.0, math.nan, 3.0]), eager, eager.double(), **arguments).ok
    assert not compare("a", torch.tensor([math.nan, 2.0, 3.0]), eager, eager.double(), **arguments).ok


def test_under_autocast_a_jump_is_as_wide_as_autocast_rounds():
    """x is float32, and a linear layer gives 16 bits: what is an ulp of these from a jump may be on either side."""
    x, grad = torch.full((1, 4), 1 - 1e-3), torch.ones(1, 4)
    module = _Scaled(1.0)
    assert not reference(module, [x], grad).jumped.any()
    assert reference(module, [x], grad, dtype=torch.bfloat16).jumped.all()
    other = _Scaled(1 + 2e-3)
    assert output_of(compare_module(other, module, [x], autocast_dtype=torch.bfloat16)).ok
    assert not output_of(compare_module(other, module, [x])).ok


def test_a_jump_of_a_value_of_each_row_is_one_of_the_row():
    """And those of elements before it stay."""
    x = torch.tensor([[2.0, 0.5, 0.2], [1.3, 0.3, 1.0], [0.3, 0.1, 0.7]])
    with Kinks(torch.float32) as found:
        torch.floor(x) + torch.floor(x[:, :1])
    rows = [[True, True, True], [False, False, True], [False, False, False]]
    assert found.jumped.tolist() == found.near.tolist() == rows
    jumped = reference(_OfRows(), [x], torch.ones(3, 3)).jumped
    assert jumped.tolist() == [[True] * 3, [False] * 3, [False] * 3]


class _OfRows(torch.nn.Module):
    def forward(self, x):
        return x + torch.floor(x[:, :1])


def test_elements_at_other_positions_and_joined_channels() -> None:
    """What is made of an element next to a kink: its copies, then all channels there, as nobody knows whose it is."""
    x = torch.ones(1, 2, 2, 3)
    x[0, 1, 1, 2] = 0
    with Kinks(torch.float32) as kinks:
        y = torch.nn.functional.interpolate(torch.relu(x), scale_factor=2)
        assert kinks.near is not None and kinks.near.nonzero().tolist() == [
            [0, 1, i, j] for i in (2, 3) for j in (4, 5)
        ]
        torch.cat((y, y), 1)
    assert kinks.near.shape == (1, 1, 4, 6) and kinks.near[0, 0, 2:, 4:].all() and kinks.near.sum() == 4
