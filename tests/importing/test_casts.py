"""Casts that change nothing, or that kernels do as well: they compute in float32."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fusegen.errors import SpecError
from fusegen.importing.module import from_module
from tests.importing.modules import Source, chain, imported, plan

pytestmark = pytest.mark.torch

LEFT_OUT = {
    "return y.float().tanh().to(y.dtype)": [{"op": "tanh"}],
    "return y.to(y.dtype).tanh()": [{"op": "tanh"}],
    "return y.tanh().type_as(x)": [{"op": "tanh"}],
    "return y.to(y.device).tanh()": [{"op": "tanh"}],
    "return torch.softmax(y, -1, dtype=torch.float32).to(y.dtype)": [{"op": "softmax"}],
}


@pytest.mark.parametrize("body", LEFT_OUT)
def test_what_changes_nothing_is_left_out(body: str) -> None:
    assert chain(imported(Source("", body))) == LEFT_OUT[body]


class RmsNorm(nn.Module):
    """As language models have it."""

    def __init__(self, hidden_size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


class Block(nn.Module):
    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.norm, self.fc = RmsNorm(size), nn.Linear(size, 8)

    def forward(self, x):
        return F.silu(self.fc(self.norm(x)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rms_norm_of_any_dtype(dtype: torch.dtype) -> None:
    found = plan(from_module(RmsNorm(16).to(dtype), [torch.randn(2, 7, 16).to(dtype)], arguments=[16])).spec.chain
    assert [step.op for step in found] == ["rms_norm", "mul"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_in_a_block_keeps_its_weight(dtype: torch.dtype) -> None:
    text = from_module(Block().to(dtype), [torch.randn(7, 16).to(dtype)], arguments=[])
    assert "{op: rms_norm, name: norm, eps: 1e-06}" in text


class Kept(nn.Module):
    """What is kept of a product."""

    def forward(self, x, keep):
        return x.tanh() * keep.to(x.dtype)


def test_a_mask_as_a_factor() -> None:
    spec = plan(from_module(Kept(), [torch.randn(6, 8), torch.rand(6, 8) > 0.5])).spec
    assert spec.chain[1].mask == "keep"


REFUSED = {
    "to fewer bits": ("return y.to(torch.bfloat16).float()", "a cast to another dtype"),
    "to double precision": ("return y.double().tanh().float()", "a cast to another dtype"),
    "of the result": ("return y.float().tanh()", "in bfloat16, the result is of float32"),
    # In 16 bits y stays what it was.
    "changed in place": ("z = y.float()\nz.mul_(2)\nreturn (z + y).to(y.dtype)", "that was cast, or was not"),
}


@pytest.mark.parametrize("body, message", REFUSED.values(), ids=REFUSED)
def test_casts_that_are_refused(body: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        imported(Source("", body))
