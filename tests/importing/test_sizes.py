"""Example inputs with equal sizes: imports try others, and what these alone break is not the module's fault."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fusegen.errors import SpecError
from fusegen.importing.module import from_module
from fusegen.importing.traces.distinct_sizes import distinct_sizes
from tests.importing.modules import plan

pytestmark = pytest.mark.torch


class Of(nn.Module):
    """A function of inputs, and of parts by their names."""

    def __init__(self, function, **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


class OfTwo(Of):
    def forward(self, x, other):
        return self.function(self, x, other)


def _square(*sizes: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(sizes))


IMPORTED = {
    "group norm": (nn.Sequential(nn.GroupNorm(8, 16), nn.SiLU()), [(16, 16)], {"input": ("batch", 16)}),
    "a product": (
        Of(lambda m, x: F.relu(x @ m.w), w=_square(16, 16)),
        [(16, 16)],
        {"x": ("batch", 16)},
    ),
    "a parameter for each row": (
        Of(lambda m, x: m.fc(x) + m.p, fc=nn.Linear(8, 8), p=_square(8, 8)),
        [(8, 8)],
        {"x": (8, 8)},
    ),
    "a view of so many rows": (
        Of(lambda m, x: m.fc(x).view(16, 8).relu(), fc=nn.Linear(16, 8)),
        [(16, 16)],
        {"x": (16, 16)},
    ),
    "a sum": (
        OfTwo(lambda m, x, other: x.exp() + other),
        [(8, 8), (8, 8)],
        dict.fromkeys(("x", "other"), ("batch", "channels")),
    ),
    "a parameter with dimensions of one": (
        Of(lambda m, x: m.fc(x).relu() * m.p, fc=nn.Linear(6, 8), p=nn.Parameter(torch.ones(1, 1, 8))),
        [(3, 4, 6)],
        {"x": ("batch", "positions", 6)},
    ),
    "FiLM": (
        OfTwo(lambda m, x, other: x * other[:, None]),
        [(8, 8, 8), (8, 8)],
        {"x": ("batch", "positions", "channels"), "other": ("batch", "channels")},
    ),
}


@pytest.mark.parametrize("module, shapes, inputs", IMPORTED.values(), ids=IMPORTED)
def test_equal_sizes(module: nn.Module, shapes: list[tuple], inputs: dict) -> None:
    spec = plan(from_module(module, [torch.randn(shape) for shape in shapes])).spec
    assert spec.inputs == inputs
    # The sizes that planning assumes are the example's.
    assert {*spec.dims.values()} <= {*shapes[0]}


REFUSED = {
    "group norm of images": (nn.GroupNorm(8, 16), [(4, 16, 16, 16)], "group_norm over positions"),
    "a square product": (OfTwo(lambda m, x, other: torch.matmul(x, other)), [(16, 16)] * 2, "a product of two values"),
    "a product from the left": (Of(lambda m, x: m.w @ x, w=_square(16, 16)), [(16, 16)], "no matmul that is called"),
    "mixed tokens": (
        Of(lambda m, x: m.fc(x.transpose(1, 2)).transpose(1, 2) + x, fc=nn.Linear(16, 16)),
        [(4, 16, 16)],
        "linear over other dimensions than the channels.*import what is over another one by itself",
    ),
    "rows of pooled tokens": (
        Of(lambda m, x: m.fc(m.norm(x).mean(1)), norm=nn.LayerNorm(6), fc=nn.Linear(6, 8)),
        [(3, 4, 6)],
        "linear over other dimensions than the channels.*dimension 1 of the first input",
    ),
    "rows as one dimension": (
        Of(
            lambda m, x: m.norm(m.fc(x).reshape(-1, 8)).view(x.shape[0], x.shape[1], 8),
            fc=nn.Linear(6, 8),
            norm=nn.BatchNorm1d(8),
        ),
        [(3, 4, 6)],
        "batch_norm over other dimensions than the channels.*flatten the rows in front",
    ),
    "a parameter of tokens": (
        Of(lambda m, x: m.fc(x) * m.p, fc=nn.Linear(6, 8), p=nn.Parameter(torch.ones(4, 1))),
        [(3, 4, 6)],
        "for a dimension of 4 alone, as 'p' has it",
    ),
    "a parameter of channels that are last": (
        Of(
            lambda m, x: m.fc(m.conv(x).permute(0, 2, 3, 1)).mul(m.p).permute(0, 3, 1, 2),
            **{"conv": nn.Conv2d(3, 5, 3), "fc": nn.Linear(5, 6), "p": nn.Parameter(torch.ones(1, 1, 1, 6))},
        ),
        [(2, 3, 7, 8)],
        "one for each channel has the shape",
    ),
    "a view of so many positions": (
        Of(lambda m, x: m.fc(x).view(16, 16, 8).relu(), fc=nn.Linear(8, 8)),
        [(16, 16, 8)],
        "for a dimension of 16 alone",
    ),
}


@pytest.mark.parametrize("module, shapes, message", REFUSED.values(), ids=REFUSED)
def test_refusals_of_equal_sizes(module: nn.Module, shapes: list[tuple], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        from_module(module, [torch.randn(shape) for shape in shapes])


def test_rows_of_one_input_of_a_product_are_changed_alone() -> None:
    module = OfTwo(lambda m, x, other: torch.bmm(x, other.transpose(1, 2)))
    x, other = distinct_sizes(module, [torch.randn(4, 8, 16), torch.randn(4, 8, 16)])
    assert x.shape[1] != other.shape[1] and (x.shape[0], x.shape[2]) == (other.shape[0], other.shape[2]) == (4, 16)


class GroupOfEachChannel(nn.Module):
    def __init__(self, n: int, c: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(n, c, 3), nn.GroupNorm(c, c)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()


def test_channels_that_are_also_a_number_of_groups_are_fixed() -> None:
    """The spec's module cannot be made of other ones, with the number of groups that it has."""
    spec = plan(from_module(GroupOfEachChannel(3, 6), [torch.randn(2, 3, 9)], arguments=(3, 6))).spec
    assert [*spec.arguments] == ["n"] and (spec.chain[0].out_channels, spec.chain[1].num_groups) == (6, 6)


class NamesTwice(nn.Module):
    def __init__(self, n: int, gate: int, bias: tuple[int, ...], shift: float) -> None:
        super().__init__()
        self.fc, self.p, self.amount = nn.Linear(n, gate), nn.Parameter(torch.zeros(bias)), shift

    def forward(self, x, gate, bias, shift):
        return self.fc(x) * gate + self.p * bias + self.amount * shift


def test_arguments_that_are_called_as_inputs_are_numbers() -> None:
    inputs = [torch.randn(6, 5), *(torch.randn(6, 8) for _ in range(3))]
    text = from_module(NamesTwice(5, 8, (8,), 0.5), inputs, arguments=(5, 8, (8,), 0.5))
    assert "which is fixed here: gate=8, bias=(8,), shift=0.5." in text
    assert "arguments:\n  n: {type: dim}\n  amount: {" in text
