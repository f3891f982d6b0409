"""nn.RMSNorm without an eps: the generated module takes the one that PyTorch takes, that of float32 in 16 bits too."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

TEXT = """\
fusegen: 1
name: default_eps
about: An RMS norm without an eps
dims: {batch: 8, features: 16}
arguments: {features: {type: dim}}
inputs: {x: [batch, features]}
chain:
  - {op: rms_norm, name: rms, eps: null}
"""


@pytest.fixture(scope="module")
def module_class(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("default_eps")
    plan = write("default_eps", TEXT, root)
    return emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False).DefaultEps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_as_pytorch_where_eps_decides(module_class, dtype: torch.dtype) -> None:
    """Elements of about 1e-4, whose squares are smaller than any of the eps in question."""
    torch.manual_seed(0)
    module = module_class(16).to(dtype)
    assert module.rms.eps is None
    x = (torch.randn(8, 16, dtype=torch.float64) * 1e-4).to(dtype)
    expected = torch.nn.RMSNorm(16, eps=None, dtype=dtype)(x)
    rtol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(module(x), expected, rtol=rtol, atol=0)
    torch.testing.assert_close(module.fusegen_reference(x), expected, rtol=0, atol=0)


def test_an_eps_that_is_set_later(module_class) -> None:
    module, x = module_class(16), torch.full((2, 16), 1e-3)
    module.rms.eps = 3e-6
    torch.testing.assert_close(module(x), torch.full((2, 16), 0.5))
