"""More than 2^31 elements, where a 32-bit index would wrap. About 25 GB of GPU memory."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.gpu]

ROOT = Path(__file__).resolve().parents[2]
FEATURES, CHANNELS = 8, 4100
ROWS = 2**31 // CHANNELS + 1000
# Rows on both sides of element 2^31, and the first and last.
PICKED = [0, 1, 2**31 // CHANNELS - 1, 2**31 // CHANNELS, 2**31 // CHANNELS + 1, ROWS - 2, ROWS - 1]
ARGUMENTS = {
    "matmul_bn_bias_div_swish": (FEATURES, CHANNELS),
    "gemm_groupnorm_swish_multiply_swish": (FEATURES, CHANNELS, 41, (CHANNELS,)),
    "gemm_multiply_leakyrelu": (FEATURES, CHANNELS, 1.5, 0.1),
    "matmul_min_subtract": (FEATURES, CHANNELS, 0.3),
}


def made(name: str) -> torch.nn.Module:
    if not (ROOT / "generated" / name / "_C.so").exists():
        pytest.skip(f"needs `fusegen build specs/{name}.yaml`")
    torch.manual_seed(1)
    return fusegen.load(name, ROOT / "generated")(*ARGUMENTS[name]).to("cuda", torch.bfloat16)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_rows_are_what_they_are_among_few(name: str) -> None:
    """In evaluation rows are independent: a huge batch gives each the bits that a batch of a few gives."""
    module = made(name).eval()
    few = torch.randn(len(PICKED), FEATURES, device="cuda", dtype=torch.bfloat16)
    many = torch.randn(ROWS, FEATURES, device="cuda", dtype=torch.bfloat16)
    many[PICKED] = few
    gradient = torch.randn(len(PICKED), CHANNELS, device="cuda", dtype=torch.bfloat16)
    alone, leaf = few.clone().requires_grad_(), many.requires_grad_()
    expected = module(alone)
    expected.backward(gradient)
    wanted = {name: p.grad.float() for name, p in module.named_parameters()}
    module.zero_grad()
    found = module(leaf)
    assert found.numel() > 2**31
    torch.testing.assert_close(found[PICKED], expected, rtol=2e-2, atol=2e-2)  # cuBLAS takes another kernel
    sparse = torch.zeros(ROWS, CHANNELS, device="cuda", dtype=torch.bfloat16)
    sparse[PICKED] = gradient
    found.backward(sparse)
    torch.testing.assert_close(leaf.grad[PICKED], alone.grad, rtol=5e-2, atol=5e-2)
    others = torch.ones(ROWS, dtype=torch.bool)
    others[PICKED] = False
    assert not leaf.grad[others.cuda()].any()
    for key, parameter in module.named_parameters():
        torch.testing.assert_close(parameter.grad.float(), wanted[key], rtol=5e-2, atol=5e-2, msg=key)


def test_statistics_of_a_huge_batch() -> None:
    module = made("matmul_bn_bias_div_swish").train()
    module.bn.momentum = 1.0
    x = torch.randn(ROWS, FEATURES, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        module(x)
        total = torch.zeros(2, CHANNELS, device="cuda", dtype=torch.float64)
        for part in x.split(2**15):
            product = module.matmul(part).double()
            total += torch.stack((product.sum(0), product.square().sum(0)))
    mean = total[0] / ROWS
    variance = (total[1] / ROWS - mean.square()) * ROWS / (ROWS - 1)
    torch.testing.assert_close(module.bn.running_mean.double(), mean, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(module.bn.running_var.double(), variance, rtol=1e-2, atol=1e-3)


def test_pieces_of_more_rows_than_a_grid_has_blocks_for() -> None:
    """One launch splits dz by columns: 65535 blocks of 64 rows at a time."""
    name, width = "gemm_multiply_leakyrelu", 192
    rows = 64 * 65535 + 1000
    if not (ROOT / "generated" / name / "_C.so").exists():
        pytest.skip(f"needs `fusegen build specs/{name}.yaml`")
    torch.manual_seed(1)
    module = fusegen.load(name, ROOT / "generated")(width, width, 1.0, 1.0, device="cuda", precision="fp32_split")
    module._fusegen_split_always = True
    x, gradient = (torch.randn(rows, width, device="cuda") for _ in range(2))
    x[-1000:] *= 8  # what the first blocks come back for has the largest elements
    x.requires_grad_()
    assert module.fusegen_kernels(x).precision == "fp32_split"
    module(x).backward(gradient)
    parts = zip(gradient.split(1 << 18), x.detach().split(1 << 18), strict=True)
    expected = sum(dz.double().t() @ part.double() for dz, part in parts)
    [weight] = (p for p in module.parameters() if p.dim() == 2)
    rounding = 2**-24 * (rows / 64) ** 0.5  # of a float32 sum of so many chunks
    assert (weight.grad - expected).norm() < rounding * expected.norm()
    expected = gradient[-2000:].double() @ weight.double()
    assert (x.grad[-2000:] - expected).norm() < 1e-6 * expected.norm()
