"""Which numbers stay arguments of the constructor or attributes, and what parameters begin with."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fusegen.errors import SpecError
from fusegen.importing.checks.check import FIXED_ROWS, OTHER_SIZES, OTHER_VALUES, UNKNOWN_VALUES
from fusegen.importing.module import from_module
from fusegen.importing.reading.forms import owned, recognised
from fusegen.importing.reading.values import CHANNELS as CHANNEL
from fusegen.importing.reading.values import Number, Values
from fusegen.importing.steps.chain import Steps
from fusegen.spec.yaml import parse_yaml
from tests.importing.modules import CHANNELS, WIDTH, Source, chain, imported


def data(text: str) -> dict:
    return parse_yaml(text, "spec.yaml").data


class Numbers(nn.Module):
    """Every number is 2, and so are many that are something else."""

    def __init__(self, n: int, m: int, groups: int, factor: float, slope: float = 2.0, start: float = 2.0) -> None:
        super().__init__()
        self.fc = nn.Linear(n, m)
        self.gn = nn.GroupNorm(groups, m)
        self.scaled_by = factor
        self.act = nn.LeakyReLU(slope)
        self.p = nn.Parameter(torch.full((m,), start))
        self.q = nn.Parameter(torch.full((m,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gn(self.fc(x)) * self.scaled_by
        y = self.act(y + 2.0) * self.p
        return y - self.q


def test_numbers_are_told_apart_by_what_changes_them() -> None:
    text = from_module(Numbers(8, 8, 2, 2.0), [torch.randn(4, 8)], arguments=[8, 8, 2, 2.0])
    assert data(text)["arguments"] == {
        "n": {"type": "dim"},
        "m": {"type": "dim"},
        "groups": {"type": "int", "typical": 2},
        "factor": {"type": "float"},
        "slope": {"type": "float", "default": 2.0},
        "start": {"type": "float", "default": 2.0},
    }
    assert data(text)["inputs"] == {"x": ["batch", "n"]}
    assert chain(text) == [
        {"op": "group_norm", "name": "gn", "num_groups": "groups"},
        {"op": "mul", "constant": "factor"},
        {"op": "add", "constant": 2.0},
        {"op": "leaky_relu", "negative_slope": "slope"},
        {"op": "mul", "parameter": "p", "shape": ["m"], "init": "start"},
        {"op": "sub", "parameter": "q", "shape": ["m"], "init": 2.0},
    ]


def test_without_the_constructors_arguments_sizes_are_numbers() -> None:
    text = from_module(Numbers(8, 8, 2, 2.0), [torch.randn(4, 8)])
    assert "dims" in data(text) and data(text)["dims"] == {"batch": 4}
    assert "arguments" not in data(text)
    assert chain(text)[1] == {"op": "mul", "name": "scaled_by", "constant": 2.0}
    assert data(text)["name"] == "numbers"


class Square(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x)) + x


def test_a_residual_of_the_input_needs_one_size() -> None:
    text = from_module(Square(8), [torch.randn(4, 8)], arguments={"width": 8})
    assert data(text)["dims"] == {"batch": 4, "width": 8}
    assert chain(text) == [{"op": "relu"}, {"op": "add", "input": "x"}]


class Derived(nn.Module):
    def __init__(self, width: int, times: int = 2, rate: float = 0.5) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width * times)
        self.factor = 1 / rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * self.factor


def test_what_is_computed_from_arguments_is_a_number_and_said() -> None:
    text = from_module(Derived(8), [torch.randn(4, 8)], arguments=[8])
    assert data(text)["inputs"] == {"x": ["batch", 8]}
    assert data(text)["chain"] == [
        {"op": "linear", "name": "fc", "out_features": 16},
        {"op": "mul", "name": "factor", "constant": 2.0},
    ]
    assert "# Its constructor takes more, which is fixed here: width=8, times=2, rate=0.5." in text


def test_initial_values() -> None:
    made = """
    self.a = nn.Parameter(torch.randn(m))
    self.b = nn.Parameter(torch.rand(m))
    self.c = nn.Parameter(torch.ones(1, m))
    self.d = nn.Parameter(torch.zeros(()))
    self.e = nn.Parameter(torch.randn(1))
    """
    text = imported(Source(made, "return (y * self.a + self.b) * self.c + self.d + self.e[None]"))
    assert [(step["shape"], step["init"]) for step in chain(text)] == [
        (["m"], "randn"),
        (["m"], "rand"),
        ([1, "m"], "ones"),
        ([], "zeros"),
        ([1], "randn"),
    ]
    assert OTHER_VALUES not in text
    assert OTHER_VALUES in imported(Source("self.a = nn.Parameter(torch.randn(m) * 0.1)", "return y * self.a"))


def test_initial_values_without_the_constructors_arguments() -> None:
    """A module that was trained tells nothing of them."""
    source = Source("self.p = nn.Parameter(torch.randn(m))", "return y * self.p")
    assert UNKNOWN_VALUES in from_module(source.module(), [torch.randn(4, WIDTH)])
    assert UNKNOWN_VALUES not in imported(source)
    source = Source("self.p = nn.Parameter(torch.ones(m))", "return y * self.p")
    assert UNKNOWN_VALUES not in from_module(source.module(), [torch.randn(4, WIDTH)])


def test_huge_modules_are_compared_at_other_sizes(monkeypatch) -> None:
    monkeypatch.setattr("fusegen.importing.checks.check._HUGE", 1)
    source = Source("self.p = nn.Parameter(torch.randn(m))", "return y * self.p")
    assert OTHER_SIZES in imported(source)
    # Nothing tells of other sizes without the constructor's arguments.
    assert OTHER_SIZES not in from_module(source.module(), [torch.randn(4, WIDTH)])


def test_tensors_that_forward_makes_are_on_their_own_device() -> None:
    """Only what the draft's module is compared with has no data."""
    assert chain(imported(Source("", "return y * torch.tensor(0.5).item()"))) == [{"op": "mul", "constant": 0.5}]
    with pytest.raises(SpecError, match="is not on the expected device"):
        imported(Source("", "return torch.maximum(y, torch.zeros(24, dtype=y.dtype))"))


def test_rows_that_the_module_fixes() -> None:
    text = imported(Source("", "return y.view(6, -1).tanh()"))
    assert data(text)["inputs"] == {"x": [6, "n"]} and FIXED_ROWS.format(6) in text
    text = imported(Source("self.p = nn.Parameter(torch.ones(6, m))", "return y * self.p"))
    assert chain(text) == [{"op": "mul", "parameter": "p", "shape": [6, "m"], "init": "ones"}]
    assert data(text)["inputs"] == {"x": [6, "n"]} and FIXED_ROWS.format(6) in text
    assert FIXED_ROWS[:14] not in imported(Source("", "return y.view(x.shape[0], -1).tanh()"))


def test_more_dimensions_are_rows() -> None:
    text = imported(Source("self.n = nn.LayerNorm(m)", "return self.n(y) * r", "x, r"), (2, 3, WIDTH), (2, 3, CHANNELS))
    assert data(text)["dims"]["batch"] == 6
    assert chain(text) == [{"op": "layer_norm", "name": "n"}, {"op": "mul", "input": "r"}]


def test_rows_as_one_dimension() -> None:
    lines = "b, t, c = x.shape\ny = self.fc(x.view(b * t, c))\ny = self.n(y).softmax(1).view(b, t, -1)\nreturn y.tanh()"
    text = imported(Source("self.n = nn.LayerNorm(m)", lines), (2, 3, WIDTH))
    assert data(text)["inputs"] == {"x": ["batch", "n"]}
    assert chain(text) == [{"op": "layer_norm", "name": "n"}, {"op": "softmax"}, {"op": "tanh"}]
    for line in ("y.view(-1, 24)", "y.reshape(6, 24).view(3, 2, 24)", "self.b(y.flatten(0, 1)).view(2, 3, 24)"):
        with pytest.raises(SpecError, match="FG70[357]"):
            imported(Source("self.b = nn.BatchNorm1d(m)", f"return {line}.tanh()"), (2, 3, WIDTH))


def test_a_long_chain() -> None:
    """Longer than Python's stack. Its numbers are all of one form's, so that all are looked into."""
    values = Values()
    result = values.make("input", name="x", layout=("0", CHANNEL))
    for _ in range(500):
        for op, number in (("tanh", None), ("add", 3.0), ("mul", 0.5)):
            operands = (result,) if number is None else (result, Number(number))
            result = values.make(op, operands, layout=result.layout)
    found = Steps([owned(recognised(result, values), values)], ["x"], [], False).found
    assert [draft.data["op"] for draft in found] == ["tanh", "add", "mul"] * 500


def test_the_module_stays_as_it_was() -> None:
    source = Source("self.k = 1.5; self.n = nn.BatchNorm1d(m, momentum=None)", "return self.n(y) * self.k")
    module = source.module()
    module.n.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.random.get_rng_state()
    from_module(module, [torch.randn(4, 16, generator=torch.Generator().manual_seed(0))], arguments=[16, 24])
    assert torch.equal(torch.random.get_rng_state(), state)
    assert module.k == 1.5 and module.n.momentum is None and module.training and not module.n.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
