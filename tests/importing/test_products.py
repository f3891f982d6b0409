"""Products with weights of the module's own."""

from __future__ import annotations

import pytest
import torch

from fusegen.errors import SpecError
from fusegen.importing.module import from_module
from fusegen.spec.yaml import parse_yaml
from tests.importing.modules import CHANNELS, ROWS, WIDTH, Source, chain, plan

pytestmark = pytest.mark.torch
BY_COLUMNS = {"shape": ["n", "m"], "init": "randn"}
BY_ROWS = {"shape": ["m", "n"], "init": "randn", "transposed": True}
BIAS = {"bias": "bias", "bias_init": "zeros"}
LINES = {
    "x @ self.weight": BY_COLUMNS,
    "torch.matmul(x, self.weight)": BY_COLUMNS,
    "torch.mm(x, self.weight)": BY_COLUMNS,
    "F.linear(x, self.weight)": BY_ROWS,
    "F.linear(x, self.weight, self.bias)": BY_ROWS | BIAS,
    "x @ self.weight.T": BY_ROWS,
    "x @ self.weight.t()": BY_ROWS,
    "x.matmul(self.weight.transpose(0, 1))": BY_ROWS,
    "x @ self.weight.mT": BY_ROWS,
    "x @ self.weight.permute(-1, 0)": BY_ROWS,
    "F.linear(x, self.weight.T)": BY_COLUMNS,
}


class Product(Source):
    """A product in the place of the linear layer. made: lines of the constructor. lines: forward begins with them."""

    @property
    def text(self) -> str:
        text = super().text.replace("        self.fc = nn.Linear(n, m)\n", "")
        return text.replace("        y = self.fc(x)\n", "")


def spec_of(line: str, more: str = "return F.silu(y)", made: str = "", shape: tuple[int, ...] = (ROWS, WIDTH)) -> str:
    by_columns = line in LINES and "transposed" not in LINES[line]
    weight = "self.weight = nn.Parameter(torch.randn(" + ("n, m))" if by_columns else "m, n))")
    bias = "self.bias = nn.Parameter(torch.zeros(m))" if "bias" in line + more else ""
    source = Product("\n".join([weight, bias, made]), f"y = {line}\n{more}")
    torch.manual_seed(0)
    return from_module(source.module(), [torch.randn(shape)], arguments=[WIDTH, CHANNELS])


@pytest.mark.parametrize("line", LINES)
def test_ways_to_write_it(line: str) -> None:
    text = spec_of(line)
    first = dict(plan_data(text)["chain"][0])
    assert first == {"op": "matmul", "parameter": "weight", **LINES[line]}
    assert chain(text) == [{"op": "silu"}]
    assert plan(text).chain.contraction.by_columns == ("transposed" not in LINES[line])


def test_a_bias_behind_it_and_more_dimensions() -> None:
    text = spec_of("x @ self.weight", "return F.relu(y + self.bias)", shape=(2, 3, WIDTH))
    assert chain(text) == [{"op": "add", "parameter": "bias", "shape": ["m"], "init": "zeros"}, {"op": "relu"}]


def test_addmm_is_a_product_and_a_sum() -> None:
    product, bias, _ = plan_data(spec_of("torch.addmm(self.bias, x, self.weight.T)"))["chain"]
    assert (product["op"], product["parameter"], bias["op"], bias["parameter"]) == ("matmul", "weight", "add", "bias")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("self.weight @ x.T", "FG70"),
        ("x @ (2 * self.weight).T", "FG70"),
        ("x @ x.T", "FG70"),
        ("x @ self.weight.T @ self.weight", "a second product with the parameter 'weight'"),
        ("F.silu(self.weight.T)", "FG70"),
    ],
)
def test_what_is_refused(line: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec_of(line)


def plan_data(text: str) -> dict:
    return parse_yaml(text, "spec.yaml").data
