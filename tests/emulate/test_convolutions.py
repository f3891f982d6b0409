"""Chains behind a convolution as users have them: PyTorch's convolution, binding and kernels, on the CPU."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from fusegen.verify.checks import behaviour, memory, operators  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.formats import memory_formats  # noqa: E402
from fusegen.verify.checks.training import compare_steps  # noqa: E402
from tests.chains.convolutions import EXPRESSIBLE  # noqa: E402
from tests.emulate.convolutions import NARROW, SIZES, Calls, drawn, failures, packages, pair  # noqa: E402

__all__ = ["packages"]  # a fixture

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_as_accurate_as_eager(packages, name, size) -> None:
    """Results, gradients of inputs and parameters, and running statistics, in both memory formats."""
    fused, original = pair(packages, name)
    for last in (False, True) if EXPRESSIBLE[name].spatial > 1 else (False,):
        inputs = drawn(packages, name, size, last=last)
        for train in (True, False):
            assert not failures(compare_module(fused, original, inputs, train=train))
            assert fused.train(train).fusegen_kernels(*inputs)


@pytest.mark.parametrize("name", NARROW)
def test_in_16_bits_and_under_autocast(packages, name) -> None:
    fused, original = pair(packages, name)
    for autocast in (None, torch.bfloat16):
        dtype = torch.float32 if autocast else torch.bfloat16
        fused, original = fused.to(dtype), original.to(dtype)
        inputs = drawn(packages, name, dtype=dtype)
        for train in (True, False):
            assert not failures(compare_module(fused, original, inputs, autocast_dtype=autocast, train=train))


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_same_state_from_the_same_seed(packages, name) -> None:
    chain, states = EXPRESSIBLE[name], []
    for cls in (chain.original, packages(name)[1]):
        torch.manual_seed(5)
        states.append(cls(*chain.constructed).state_dict())
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize("name", ["batch_norm_scaling", "residual_hardswish", "one_dimension"])
@pytest.mark.parametrize(
    "check",
    [memory_formats, behaviour.strides, behaviour.frozen, behaviour.inputs_untouched, memory.footprint,
     operators.opcheck],
    ids=lambda check: check.__name__,
)  # fmt: skip
def test_behaviour(packages, name, check) -> None:
    fused, original = pair(packages, name)
    fused.fusegen_strict = False  # memory_formats leaves the batch out
    assert not failures(check(fused, original, drawn(packages, name)))


TILED = [name for name in EXPRESSIBLE if name not in ("one_dimension", "smallest_tanh")]  # which reduce rows


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_what_is_contiguous_is_not_copied(packages, name) -> None:
    """Behind the convolution: neither results nor gradients nor further inputs, unless a row is reduced."""
    fused, _ = pair(packages, name)
    inputs = drawn(packages, name)
    with Calls() as calls:
        y = fused(*inputs)
        torch.autograd.grad(y, [*inputs, *fused.parameters()], torch.ones_like(y))
    batch, channels, *positions = y.shape
    rows, images = (y.numel() // channels, channels), (batch, channels, y[0, 0].numel())
    forward, backward = calls.ours
    if name in TILED:
        assert not [shape for shape in calls.copies if shape.numel() == y.numel()]
        assert images in forward and images in backward and not {rows} & {*forward, *backward}
    else:
        assert rows in forward and rows in backward and not {images} & {*forward, *backward}
    assert y.is_contiguous()


@pytest.mark.parametrize("name", ["residual_hardswish", "add_batch_norm"])
def test_tensors_anywhere(packages, name) -> None:
    """Further inputs and gradients that begin within a vector, or are in channels_last beside a contiguous result."""
    fused, _ = pair(packages, name)
    x, further = (each.detach() for each in drawn(packages, name))
    shifted = torch.empty(further.numel() + 1)[1:].view(further.shape).copy_(further)
    last = further.movedim(1, -1).contiguous().movedim(-1, 1)
    grad = torch.randn(further.shape)
    results = []
    for add in (further, shifted, last):
        given = [x.clone().requires_grad_(), add.requires_grad_()]
        y = fused(*given)
        assert y.is_contiguous()
        results.append([y, *torch.autograd.grad(y, [*given, *fused.parameters()], grad)])
    shifted_grad = torch.empty(grad.numel() + 1)[1:].view(grad.shape).copy_(grad)
    y = fused(x.requires_grad_(), further.requires_grad_())
    results.append([y, *torch.autograd.grad(y, [x, further, *fused.parameters()], shifted_grad)])
    first, *others, in_last, shifted_in_grad = results
    for other in (*others, shifted_in_grad):  # sums have the order of the rows, which is the same for all
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    # All tensors are in channels_last then, and other kernels sum them.
    torch.testing.assert_close(in_last, first, rtol=2e-6, atol=2e-6)


def test_training(packages) -> None:
    fused, original = pair(packages, "batch_norm_scaling")
    batches = [[torch.randn_like(x) for x in drawn(packages, "batch_norm_scaling")] for _ in range(3)]
    assert not failures(compare_steps(fused, original, batches))


def test_batches_that_pytorch_refuses_are_not_counted(packages) -> None:
    """PyTorch's batch norm counts what the convolution has made."""
    fused, _ = pair(packages, "batch_norm_scaling")
    fused.bn.momentum, fused.fusegen_strict = None, False
    before = fused.bn.num_batches_tracked.clone()
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        fused(torch.randn(2, 3, 2, 9))
    assert torch.equal(fused.bn.num_batches_tracked, before)


def test_calls_that_pytorch_refuses(packages) -> None:
    fused, original = pair(packages, "batch_norm_scaling")
    fused.fusegen_strict = False
    with pytest.raises(ValueError, match=r"x must be \[batch, 3, height, width\], got \[2, 4, 9, 9\]"):
        fused(torch.randn(2, 4, 9, 9))
    with pytest.raises(ValueError, match=r"inputs must be \[batch, channels, height, width\], or without the batch"):
        fused(torch.randn(2, 3))
    for shape in ((2, 3, 2, 9), (1, 3, 3, 3)):  # a kernel beyond the input, one value a channel
        raised = []
        for module in (fused, original):
            with pytest.raises((ValueError, RuntimeError)) as caught:
                module(torch.randn(shape))
            raised.append((caught.type, str(caught.value)))
        assert raised[0] == raised[1]


@pytest.mark.filterwarnings("ignore:.*no dimension for the batch")
def test_without_a_batch(packages) -> None:
    """PyTorch's operators run, which batch norm refuses."""
    fused, original = pair(packages, "conv_relu_bias")
    x = drawn(packages, "conv_relu_bias")[0][0]
    fused.fusegen_strict = False
    assert fused.fusegen_kernels(x).reason == "the input has no dimension for the batch"
    assert torch.equal(fused(x), original(x))
    fused, _ = pair(packages, "batch_norm_scaling")
    fused.fusegen_strict = False
    with pytest.raises(ValueError, match="expected 4D input"):
        fused(x)


@pytest.mark.parametrize("name", ["batch_norm_scaling", "residual_hardswish", "one_dimension"])
def test_torch_compile_without_graph_break(packages, name) -> None:
    fused, _ = pair(packages, name)
    inputs = drawn(packages, name)
    compiled = torch.compile(copy.deepcopy(fused), fullgraph=True, backend="aot_eager")
    results = []
    for call in (fused, compiled):
        y = call(*inputs)
        results.append([y, *torch.autograd.grad(y, [*inputs, *call.parameters()], torch.ones_like(y))])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
