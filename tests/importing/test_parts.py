"""Modules that divide a linear layer's result into parts."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fusegen.importing.module import from_module
from fusegen.plan.load import planned_document
from fusegen.spec.yaml import parse_yaml
from tests.importing.modules import plan


class GeGLU(nn.Module):
    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.proj = nn.Linear(dim_in, dim_out * 2)

    def forward(self, x):
        hidden, gate = self.proj(x).chunk(2, dim=-1)
        return hidden * F.gelu(gate)


class SwiGLU(nn.Module):
    """Its parts have the norm's width."""

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.proj, self.norm = nn.Linear(dim_in, 2 * dim_out, bias=False), nn.LayerNorm(dim_out)

    def forward(self, x):
        gate, up = self.proj(x).split(self.norm.normalized_shape[0], -1)
        return self.norm(F.silu(gate) * up)


class Thirds(nn.Module):
    """Names that nothing gives; one part is used twice, another not at all."""

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.proj = nn.Linear(dim_in, 3 * dim_out)

    def forward(self, x):
        parts = self.proj(x).chunk(3, -1)
        return parts[2] * torch.sigmoid(parts[0]) - parts[2]


class Glu(nn.Module):
    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.proj = nn.Linear(dim_in, dim_out + dim_out)

    def forward(self, x):
        return F.glu(self.proj(x))


class Rounded(nn.Module):
    """The layer is twice as wide at some widths alone."""

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.proj = nn.Linear(dim_in, max(2 * dim_out, 12))

    def forward(self, x):
        return F.glu(self.proj(x))


CASES = {
    GeGLU: (2, ["hidden", "gate"], "gate"),
    SwiGLU: (2, ["gate", "up"], None),
    Thirds: (3, ["part1", "part2", "part3"], None),
}


def imported(cls: type[nn.Module]):
    torch.manual_seed(0)
    return plan(from_module(cls(8, 6), [torch.randn(2, 5, 8)], arguments=(8, 6), name="divided"))


@pytest.mark.parametrize("cls", CASES)
def test_chunk(cls) -> None:
    count, parts, running = CASES[cls]
    found = imported(cls)
    linear, chunk = found.spec.chain[:2]
    assert linear.out_features == f"{count} * dim_out" and found.spec.dims["dim_out"] == 6
    assert (list(chunk.parts), chunk.running) == (parts, running)


def test_glu() -> None:
    found = imported(Glu)
    assert found.spec.chain[0].out_features == "2 * dim_out" and found.spec.chain[1].op == "glu"


def test_a_width_that_is_no_multiple_is_a_number() -> None:
    found = imported(Rounded)
    assert found.spec.chain[0].out_features == 12 and set(found.spec.arguments) == {"dim_in"}


class Gated(nn.Module):
    def __init__(self, divided) -> None:
        super().__init__()
        self.divided = divided

    def forward(self, x):
        a, b = self.divided(x)
        return F.silu(a) * b


@pytest.mark.parametrize("divided", [lambda x: x.chunk(2, dim=-1), lambda x: x.tensor_split(2, dim=-1)])
def test_parts_of_an_input_have_a_number_of_channels(divided) -> None:
    spec = plan(from_module(Gated(divided), [torch.randn(5, 14)])).spec
    assert spec.inputs == {"x": ("batch", 14)}
    assert [step.op for step in spec.chain] == ["chunk", "silu", "mul"]


class GatedLayer(nn.Module):
    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.fc = nn.Linear(d, h)

    def forward(self, x):
        a, b, c = x.split(x.shape[-1] // 3, dim=-1)
        return self.fc(torch.tanh(a) * b + c)


def test_parts_of_an_input_are_arguments_of_the_layer_behind() -> None:
    text = from_module(GatedLayer(4, 5), [torch.randn(2, 6, 12)], arguments=(4, 5))
    spec = planned_document(parse_yaml(text, "spec.yaml")).spec
    assert spec.inputs == {"x": ("batch", "3 * d")}
