"""The gradient of an input with fewer rows than the result is rounded once, as a sum, where eager PyTorch does so."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

MODULATED = """
fusegen: 1
name: modulated
dims: {batch: 4, positions: 16, features: 32}
arguments: {features: {type: dim}}
inputs:
  x: [batch, positions, features]
  scale: [batch, 1, features]
  shift: [positions, features]
dtypes: [float32, bfloat16]
chain:
  - {op: layer_norm, name: norm, affine: false}
  - {op: mul, input: scale, plus: 1.0}
  - {op: add, input: shift}
"""


def test_it_is_rounded_once_behind_a_norm_in_float32(tmp_path, emulation_cache) -> None:
    """Under autocast, whose layer norm returns float32: what is multiplied by a scale of 16 bits is float32, too."""
    plan = write("modulated", MODULATED, tmp_path)
    (mode,) = (each for each in plan.modes if each.name == "autocast float32, inputs bfloat16")
    package = emulate_package(tmp_path / "modulated", cache=emulation_cache, checked=False)
    module = package.Modulated(96)
    module.fusegen_strict = True
    torch.manual_seed(0)
    x = torch.randn(3, 40, 96)
    scale = torch.randn(3, 1, 96).bfloat16().requires_grad_()
    shift = torch.randn(40, 96).bfloat16().requires_grad_()
    grad = torch.randn(3, 40, 96)
    with torch.autocast("cpu", torch.bfloat16):
        found = module(x, scale, shift)
    found.backward(grad)
    assert found.dtype == torch.float32
    hat = F.layer_norm(x.double(), (96,), None, None, module.norm.eps)
    exact = {"scale": (grad.double() * hat).sum(1, keepdim=True), "shift": grad.double().sum(0)}
    for name, given in (("scale", scale), ("shift", shift)):
        assert given.grad.dtype == torch.bfloat16 and given.grad.shape == given.shape
        # Half a unit in the last place of the sum, and nothing of its terms.
        torch.testing.assert_close(given.grad.double(), exact[name], rtol=2**-8, atol=1e-5)
