"""Memory formats around a convolution: copies from one to the other, and strides of results. On the CPU, through the
emulator."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.verify.checks.compared import compare_module  # noqa: E402
from tests.emulate.convolutions import (  # noqa: E402
    NARROW,
    Calls,
    drawn,
    failures,
    formats_of,
    packages,
    pair,
    part_of_support,
)

__all__ = ["packages"]  # a fixture

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


@pytest.fixture
def formats(packages, monkeypatch):
    """support/memory_formats.py of a package, which leaves no tensor to PyTorch because it is small."""

    def patched(name):
        module = part_of_support(packages(name)[1], "memory_formats")
        for limit in ("_LEAST_BYTES", "_LEAST_IMAGE"):
            monkeypatch.setattr(module, limit, 0)
        return module

    return patched


# The convolution's input and its gradient; in a chain that copies the input again, as a residual, the result and its
# gradient, too.
COPIED = {"batch_norm_scaling": 2, "residual_hardswish": 2, "one_dimension": 6}


@pytest.mark.parametrize(
    ("name", "dtype", "autocast"),
    [
        *((name, torch.float32, None) for name in COPIED),
        *((name, torch.bfloat16, None) for name in NARROW),
        *((name, torch.float32, torch.bfloat16) for name in NARROW),
    ],
    ids=str,
)
def test_copies_by_the_kernel(packages, formats, name, dtype, autocast) -> None:
    """From one memory format to the other, and to another dtype: nothing of this size is left to PyTorch, but for the
    gradient of the input in 16 bits, which has few channels, and that which is cast back to float32. Where oneDNN has
    no convolution in 16 bits that gradient is contiguous as it is made."""
    formats(name)
    fused, original = pair(packages, name, dtype)
    inputs = drawn(packages, name, dtype=dtype)
    for train in (True, False):
        assert not failures(compare_module(fused, original, inputs, autocast_dtype=autocast, train=train))
    fused.train()
    with Calls() as calls, torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
        y = fused(*inputs)
        torch.autograd.grad(y, [*inputs, *fused.parameters()], torch.ones_like(y))
    narrow = dtype == torch.bfloat16
    assert len(calls.ours) - 2 == COPIED[name] - narrow  # under autocast the weight, and not the gradient
    made = {y.numel(), *(x.numel() for x in inputs)}
    left = [shape for shape in calls.copies if shape.numel() in made]
    assert len(left) <= (narrow or autocast is not None)


def test_which_tensors_the_kernel_copies(packages, formats) -> None:
    """What it copies, in each case; all others are as PyTorch copies them."""
    module, package = formats("batch_norm_scaling"), packages("batch_norm_scaling")[1]._fusegen_package
    for last in (True, False):
        for kind, x in formats_of(2, 3, (5, 6)):
            dense = x.is_contiguous() if last else x.is_contiguous(memory_format=torch.channels_last)
            with Calls() as calls:
                y = module.as_channels_last(package, x, x.dtype) if last else module.as_contiguous(package, x)
            assert torch.equal(x, y) and (y.stride(1) == 1 if last else y.is_contiguous()), kind
            assert not dense or y.is_contiguous(memory_format=torch.channels_last) == last, kind
            assert len(calls.ours) == dense, kind
    for shape in ((0, 3, 5, 6), (2, 1, 5, 6), (2, 3, 1, 1), (2, 3, 1, 7), (1, 3, 2, 3, 4)):
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(shape, dtype=dtype)
            with Calls() as calls:
                y = module.as_channels_last(package, x, dtype)
            assert torch.equal(x, y) and y.movedim(1, -1).is_contiguous()
            assert len(calls.ours) == (dtype == torch.float32 and shape[0] > 0 and 1 not in (shape[1], x[0, 0].numel()))


def test_the_op_that_copies(packages, formats) -> None:
    module, package = formats("batch_norm_scaling"), packages("batch_norm_scaling")[1]._fusegen_package
    op = module._op(package)
    x = torch.randn(2, 3, 70)
    for arguments in ((x, -1), (x.bfloat16(), -1), (x, 1), (x.mT, 0)):
        torch.library.opcheck(op, arguments, test_utils=("test_schema", "test_faketensor"))
        assert torch.equal(op(*arguments), arguments[0].to(op(*arguments).dtype).mT)
    for wrong in ((x.double(), -1), (x.bfloat16(), 0), (x[0], -1)):
        with pytest.raises(RuntimeError, match="no copy of|expected shape"):
            op(*wrong)


def test_small_tensors_are_left_to_pytorch(packages) -> None:
    module, package = (part_of_support(packages("batch_norm_scaling")[1], "memory_formats"),
                       packages("batch_norm_scaling")[1]._fusegen_package)  # fmt: skip
    for shape, copied in (((1, 64, 64, 64), 1), ((1, 64, 64, 63), 0), ((1 << 12, 4, 8, 8), 1), ((1 << 12, 4, 7, 9), 0)):
        with Calls() as calls:
            module.as_channels_last(package, torch.empty(shape), torch.float32)
        assert len(calls.ours) == copied


def test_one_channel(packages) -> None:
    """Strides of one channel say nothing of the memory format."""
    _, cls = packages("batch_norm_scaling")
    fused = cls(1, 8, 3, 2.0)
    fused.fusegen_strict = True
    x = torch.randn(2, 1, 6, 5, requires_grad=True)
    y = fused(x)
    assert y.is_contiguous()
    torch.testing.assert_close(y, copy.deepcopy(fused).fusegen_reference(x), rtol=1e-4, atol=1e-5)
    made = fused._fusegen_call(x, _device="cpu", _count=False)[1][0]
    package, formats = cls._fusegen_package, part_of_support(cls, "memory_formats")
    convolved = part_of_support(cls, "convolution")._convolve(package, made, grad_last=True)
    assert convolved.movedim(1, -1).is_contiguous()
    for given in (x, fused.conv.weight):
        assert formats.as_channels_last(package, given, torch.float32).stride(1) == 1


@pytest.mark.parametrize("last", [False, True], ids=["contiguous weight", "weight in channels_last"])
@pytest.mark.parametrize(
    ("batch", "channels", "positions"),
    [(2, (3, 8), (5, 6)), (1, (3, 8), (5, 4)), (2, (1, 8), (5, 6)), (2, (3, 1), (5, 6)), (2, (3, 8), (3, 3)),
     (1, (1, 1), (3, 3))],
)  # fmt: skip
def test_strides_of_the_result(packages, batch, channels, positions, last) -> None:
    """They are eager's, or the next layer of a contiguous model would begin to work in channels_last."""
    _, cls = packages("conv_relu_bias")
    torch.manual_seed(4)
    fused = cls(*channels, 3, (channels[-1], 1, 1))
    fused.fusegen_strict = True
    if last:
        fused.to(memory_format=torch.channels_last)
    for kind, x in formats_of(batch, channels[0], positions):
        mine, theirs = fused(x), fused.fusegen_reference(x)
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        made = fused.conv(x)
        # Of one in both formats eager's strides depend on the op. What is contiguous in a convolution stays so.
        if not made.is_contiguous() or made.stride() == torch.empty(made.shape).stride():
            assert mine.stride() == theirs.stride(), kind
        else:
            assert mine.stride() == made.stride(), kind


def test_strides_after_padding(packages) -> None:
    """F.pad decides of the format of a padded input; that for padding_mode circular is contiguous."""
    fused, _ = pair(packages, "relu_hardswish")
    (x,) = drawn(packages, "relu_hardswish", last=True)
    for mode in ("zeros", "circular", "replicate"):
        fused.conv = nn.Conv2d(3, 8, 3, padding=1, padding_mode=mode)
        assert fused(x).stride() == fused.fusegen_reference(x).stride(), mode
