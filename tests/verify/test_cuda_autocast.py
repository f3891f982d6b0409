"""Eager PyTorch on the CPU keeps to CUDA's autocast, whichever operators that has in float32."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.verify.runs.run import autocast, run  # noqa: E402

C, DTYPE = 12, torch.bfloat16
IN_FLOAT32 = {
    "group norm": nn.GroupNorm(3, C),
    "layer norm": nn.LayerNorm(C),
    "layer norm without weight": nn.LayerNorm(C, elementwise_affine=False),
    "rms norm": nn.RMSNorm(C),
    "softplus": F.softplus,
    "exp": torch.exp,
    "square": torch.square,
    "a number over it": lambda v: 2.0 / v,
}
IN_16_BITS = {
    "linear": nn.Linear(C, C),
    "batch norm": nn.BatchNorm1d(C),
    "gelu": F.gelu,
    "clamp": lambda v: torch.clamp(v, min=0.5),
    "a number added": lambda v: v + 2.0,
}


@pytest.mark.parametrize("name", IN_FLOAT32 | IN_16_BITS)
def test_dtypes_are_those_of_cuda(name: str) -> None:
    x = torch.rand(5, C, dtype=DTYPE)
    with autocast(nn.Identity(), [x], DTYPE):
        found = (IN_FLOAT32 | IN_16_BITS)[name](x)
    assert found.dtype == (torch.float32 if name in IN_FLOAT32 else DTYPE)


def test_a_norm_is_computed_in_float32_too() -> None:
    torch.manual_seed(0)
    x, norm = torch.randn(5, C, dtype=DTYPE), nn.GroupNorm(3, C)
    with autocast(nn.Identity(), [x], DTYPE):
        found = norm(x)
    assert torch.equal(found, norm(x.float()))
    with torch.autocast("cpu", DTYPE):
        assert norm(x).dtype == DTYPE, "PyTorch's own autocast on a CPU does the same now: nothing is left to do"


def test_gradients_come_in_the_dtypes_of_what_they_are_of() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(C, C), nn.GroupNorm(3, C))
    x = torch.randn(5, C, requires_grad=True)
    found = run(module, [x], torch.randn(5, C), autocast_dtype=DTYPE)
    assert found.output.dtype == torch.float32
    assert {each.dtype for each in found.gradients.values()} == {torch.float32}
    exact = run(module, [x], torch.randn(5, C))
    assert 0 < (found.output - exact.output).abs().max() < 0.1
