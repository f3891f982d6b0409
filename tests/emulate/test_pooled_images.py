"""Means and sums over all positions of an image, with what stands in front of them, in kernels: beside PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.training import compare_steps  # noqa: E402
from tests.emulate.image_chains import BEHAVIOUR, SIZES, Chain, Packages, behaves, failures, is_right_in_16_bits  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

CHAINS = {
    "mean": Chain(
        2, ("silu", "mean, dim: [2, 3], keepdim: false"), lambda c: {}, lambda m, x: F.silu(x).mean((2, 3)),
        dtypes="float32, bfloat16",
    ),
    "pooled": Chain(
        2, ("add, input: y", "adaptive_avg_pool2d, name: pool, output_size: 1"),
        lambda c: {"pool": nn.AdaptiveAvgPool2d(1)},
        lambda m, x, y: m.pool(x + y), ("y: [n, c, ...]",),
    ),
    "alone": Chain(  # nothing is read again for the gradient
        3, ("mean, dim: [4, 2, 3], keepdim: true",), lambda c: {}, lambda m, x: x.mean((2, 3, 4), keepdim=True),
    ),
    "normed": Chain(  # the program has values of groups of samples, too, and columns that are reduced
        1, ("group_norm, name: norm, num_groups: 8", "gelu", "batch_norm, name: bn", "mul, input: gate",
            "sum, dim: 2, keepdim: true"),
        lambda c: {"norm": nn.GroupNorm(8, c), "bn": nn.BatchNorm1d(c)},
        lambda m, x, gate: (m.bn(F.gelu(m.norm(x))) * gate).sum(2, keepdim=True), ("gate: [n, c, 1]",),
    ),
    "instances": Chain(  # what the first pass leaves is known when the last pass's sums of samples are reduced
        2, ("instance_norm, name: norm, affine: true", "silu", "mean, dim: [2, 3], keepdim: false"),
        lambda c: {"norm": nn.InstanceNorm2d(c, affine=True)}, lambda m, x: F.silu(m.norm(x)).mean((2, 3)),
    ),
    "columns": Chain(  # columns are reduced for a gradient that has one value for each channel of an image
        2, ("batch_norm, name: bn", "mean, dim: [2, 3], keepdim: false"), lambda c: {"bn": nn.BatchNorm2d(c)},
        lambda m, x: m.bn(x).mean((2, 3)),
    ),
    "measures": Chain(  # moments, of which the gradient needs the mean
        2, ("relu", "add, input: y", "std, dim: [3, 2], keepdim: true, correction: 0"), lambda c: {},
        lambda m, x, y: (F.relu(x) + y).std((2, 3), keepdim=True, correction=0), ("y: [n, c, ...]",),
    ),
    "size": Chain(
        1, ("tanh", "norm, dim: 2, keepdim: false"), lambda c: {},
        lambda m, x: torch.linalg.vector_norm(torch.tanh(x), 2, 2),
    ),
    "rows": Chain(  # no kernel has contiguous images
        2, ("softmax, dim: 1", "mul, input: y", "mean, dim: [2, 3], keepdim: true"), lambda c: {},
        lambda m, x, y: (x.softmax(1) * y).mean((2, 3), keepdim=True), ("y: [n, c, ...]",), has_contiguous_layout=False,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    return Packages(CHAINS, tmp_path_factory.mktemp("pooled"), emulation_cache)


CASES = [(name, size) for name in CHAINS for size in SIZES if name != "normed" or SIZES[size][1] % 8 == 0]
CASES.remove(("instances", "one position"))  # which PyTorch refuses
CASES.remove(("columns", "a batch of one"))  # the gradient is zero, and all that is computed are rounding errors


@pytest.mark.parametrize(("name", "size"), CASES)
def test_as_accurate_as_eager(packages, name, size) -> None:
    for fused, original, inputs, _, train in packages.calls(name, size):
        assert not failures(compare_module(fused, original, inputs, train=train))
        assert fused.train(train).fusegen_kernels(*inputs)


def test_in_16_bits_and_under_autocast(packages) -> None:
    assert is_right_in_16_bits(packages, "mean")


@pytest.mark.parametrize("name", sorted(CHAINS.keys() - {"columns"}))
@BEHAVIOUR
def test_behaviour(packages, name, check) -> None:
    assert behaves(packages, name, check)


def test_training(packages) -> None:
    fused, original = packages.pair("normed")
    batches = [[torch.randn_like(x) for x in packages.drawn("normed")] for _ in range(3)]
    assert not failures(compare_steps(fused, original, batches))


@pytest.mark.parametrize("last", [False, True])
def test_no_image_is_written_for_the_result(packages, last) -> None:
    """One pass over x forward. Backward the gradient is not spread over the positions in memory."""
    fused, _ = packages.pair("mean")
    (x,) = packages.drawn("mean", last=last)
    made = []

    class Made(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            for each in found if isinstance(found, (tuple, list)) else (found,):
                if isinstance(each, torch.Tensor) and not func.is_view:
                    made.append(each.numel())
            return found

    with Made():
        fused(x).backward(torch.randn(x.shape[:2]))
    assert made.count(x.numel()) == 1 and max(made) == x.numel()  # the gradient


def test_a_layer_that_pools_otherwise_is_pytorchs(packages) -> None:
    fused, original = packages.pair("pooled")
    inputs, fused.fusegen_strict = packages.drawn("pooled"), False
    fused.pool.output_size = original.pool.output_size = (2, 1)
    with pytest.warns(UserWarning, match="another output_size than one position"):
        assert torch.equal(fused(*inputs), original(*inputs))
