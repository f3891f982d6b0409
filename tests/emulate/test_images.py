"""Chains of images that begin with an input: batch norm over (N, C, L), NCHW and NCDHW, beside torch.nn's own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.training import compare_steps  # noqa: E402
from fusegen.verify.runs.run import run  # noqa: E402
from tests.emulate.image_chains import (  # noqa: E402
    BEHAVIOUR,
    SIZES,
    Chain,
    Original,
    Packages,
    Sources,
    behaves,
    failures,
    is_right_in_16_bits,
)

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

CHAINS = {
    "residual": Chain(
        2, ("batch_norm, name: bn", "add, input: y", "relu"), lambda c: {"bn": nn.BatchNorm2d(c)},
        lambda m, x, y: F.relu(m.bn(x) + y), ("y: [n, c, ...]",), dtypes="float32, bfloat16",
    ),
    "sequence": Chain(  # the norm is not the first step, and an input has no positions
        1, ("silu, save: s", "batch_norm, name: bn, momentum: null", "mul, input: gate", "add, value: s"),
        lambda c: {"bn": nn.BatchNorm1d(c, momentum=None)},
        lambda m, x, gate: m.bn(F.silu(x)) * gate + F.silu(x), ("gate: [n, c, 1]",),
    ),
    "volume": Chain(  # two norms, and a value for each channel
        3, ("batch_norm, name: bn, affine: false", "hardswish", "add, input: y", "batch_norm, name: bn2",
            "add, input: offset"),
        lambda c: {"bn": nn.BatchNorm3d(c, affine=False), "bn2": nn.BatchNorm3d(c)},
        lambda m, x, y, offset: m.bn2(F.hardswish(m.bn(x)) + y) + offset, ("y: [n, c, ...]", "offset: [c, 1, 1, 1]"),
    ),
    "rows": Chain(
        2, ("prelu, name: act, num_parameters: c", "mul, input: rows", "softmax, dim: 1"),
        lambda c: {"act": nn.PReLU(c)}, lambda m, x, rows: (m.act(x) * rows).softmax(1), ("rows: [n, 1, ...]",),
        has_contiguous_layout=False, keeps_format=False,
    ),
    "halves": Chain(
        2, ("glu", "batch_norm, name: bn"), lambda c: {"bn": nn.BatchNorm2d(c)},
        lambda m, x: m.bn(F.glu(x, 1)), parts=2, has_contiguous_layout=False,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    return Packages(CHAINS, tmp_path_factory.mktemp("images"), emulation_cache)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CHAINS)
def test_as_accurate_as_eager(packages, name, size) -> None:
    """Results, all gradients and running statistics, in both memory formats, which the result keeps."""
    for fused, original, inputs, _, train in packages.calls(name, size):
        assert not failures(compare_module(fused, original, inputs, train=train))
        assert fused.train(train).fusegen_kernels(*inputs)
        theirs, mine = (run(module, inputs, None, train=train).output for module in (original, fused))
        if CHAINS[name].keeps_format and 1 not in theirs.shape:
            assert theirs.stride() == mine.stride()


def test_in_16_bits_and_under_autocast(packages) -> None:
    assert is_right_in_16_bits(packages, "residual", (True, False))


@pytest.mark.parametrize("name", CHAINS)
def test_same_state_from_the_same_seed(packages, name) -> None:
    """The layers are those of torch.nn for so many positions."""
    original, fused = Original(CHAINS[name], 24), packages(name)(24)
    assert [type(each) for each in fused.children()] == [type(each) for each in original.children()]
    assert list(fused.state_dict()) == list(original.state_dict())


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_contiguous_is_not_copied(packages, name) -> None:
    """The kernels take images as they are, unless a row is reduced or has a value of its own."""
    fused, _ = packages.pair(name)
    inputs = packages.drawn(name)
    with Sources() as sources:
        y = fused(*inputs)
        torch.autograd.grad(y, inputs, torch.ones_like(y))
    (source, gradient) = sources.seen
    assert {source.dim(), gradient.dim()} == {3 if CHAINS[name].has_contiguous_layout else 2}
    assert (source.data_ptr() == inputs[0].data_ptr()) == CHAINS[name].has_contiguous_layout and y.is_contiguous()


@pytest.mark.parametrize("name", ["residual", "sequence", "halves"])
@BEHAVIOUR
def test_behaviour(packages, name, check) -> None:
    assert behaves(packages, name, check)


def test_training(packages) -> None:
    fused, original = packages.pair("residual")
    batches = [[torch.randn_like(x) for x in packages.drawn("residual")] for _ in range(3)]
    assert not failures(compare_steps(fused, original, batches))


def test_tensors_anywhere(packages) -> None:
    """Inputs that begin within a vector, that are in the other format, and that are views with gaps."""
    fused, _ = packages.pair("residual")
    x, y = (each.detach() for each in packages.drawn("residual", "whole vectors"))
    fused = packages("residual")(x.shape[1])
    shifted = torch.empty(x.numel() + 1)[1:].view(x.shape).copy_(x)
    gaps = torch.empty(*x.shape[:3], 2 * x.shape[3])[..., ::2].copy_(x)
    last = y.contiguous(memory_format=torch.channels_last)
    results, grad = [], torch.randn(x.shape)
    for one, other in ((x, y), (shifted, y), (gaps, y), (x, last)):
        given = [one.requires_grad_(), other.requires_grad_()]
        result = fused(*given)
        assert result.is_contiguous()
        results.append([result, *torch.autograd.grad(result, [*given, *fused.parameters()], grad)])
    first, *others, in_last = results
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    # All tensors are in channels_last then, and other kernels sum them.
    torch.testing.assert_close(in_last, first, rtol=2e-6, atol=2e-6)


def test_other_dimensions(packages) -> None:
    """nn.BatchNorm1d takes rows of channels, too; what nn.BatchNorm2d refuses is refused."""
    fused, original = packages.pair("sequence")
    fused.fusegen_strict = False
    x, gate = torch.randn(24, 24), torch.randn(24, 24, 1)
    with pytest.warns(UserWarning, match="other dimensions than the spec gives it"):
        made = fused.eval()(x, gate)
    torch.testing.assert_close(made, original.eval()(x, gate))
    fused, _ = packages.pair("residual")
    with pytest.raises(ValueError, match="must be \\[batch, 24, height, width\\], got \\[2, 23, 3, 3\\]"):
        fused(torch.randn(2, 23, 3, 3), torch.randn(2, 23, 3, 3))
    assert not fused.fusegen_kernels(torch.randn(1, 24, 1, 1), torch.randn(1, 24, 1, 1))
