"""Depthwise convolutions in front of the kernels: in float32 the weight's gradient is made of contiguous
operands."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tests.emulate.convolutions import FORMATS, packages, part_of_support  # noqa: E402

__all__ = ["packages"]  # a fixture

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

CHANNELS = 6


class Layer(NamedTuple):
    """Takes the place of a chain's convolution. constructed: what the module is made with."""

    chain: str
    constructed: tuple
    kind: type
    options: dict
    positions: tuple[int, ...]
    kernel: int | tuple[int, ...] = 3

    def module(self, packages, dtype=torch.float32, groups=CHANNELS):
        torch.manual_seed(3)
        fused = packages(self.chain)[1](*self.constructed)
        channels = fused.conv.out_channels
        fused.conv = self.kind(CHANNELS, channels, self.kernel, groups=groups, **self.options)
        fused.fusegen_strict = True
        return fused.to(dtype)

    def x(self, dtype=torch.float32):
        return torch.randn(2, CHANNELS, *self.positions, dtype=dtype)


TWO = ("batch_norm_scaling", (CHANNELS, 2 * CHANNELS, 3, 2.0), nn.Conv2d)
LAYERS = {
    "1d": Layer("one_dimension", (CHANNELS,), nn.Conv1d, {"padding": "same"}, (9,)),
    "2d": Layer(*TWO, {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)}, (7, 8), (3, 2)),
    "2d, valid": Layer(*TWO, {"padding": "valid"}, (7, 8), (3, 2)),
    "2d, circular": Layer(*TWO, {"padding": 1, "padding_mode": "circular"}, (7, 8), (3, 2)),
    "2d, one position": Layer(*TWO, {}, (3, 2), (3, 2)),
    "3d": Layer(
        *("four_activations", (CHANNELS, CHANNELS, 3, (CHANNELS, 1, 1, 1)), nn.Conv3d), {"padding": 1}, (3, 4, 5)
    ),
}


class Operands(TorchDispatchMode):
    """Notes whether the operands of convolutions and of their gradients are in channels_last, and what is copied."""

    def __init__(self, is_last) -> None:
        super().__init__()
        self.is_last, self.forward, self.backward, self.copies, self.wanted = is_last, [], [], [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            self.forward.append(self.is_last(args[0]))
        if func is torch.ops.aten.convolution_backward.default:
            self.backward.append([self.is_last(each) for each in args[:3]])
            self.wanted.append(list(args[-1]))
        if func in (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            self.copies.append(args[0].numel())
        return func(*args, **(kwargs or {}))


def formats_of(x):
    """In both formats where there are two, and with the strides of no dense tensor."""
    yield "contiguous", x
    yield "a part", torch.cat([x, x], -1)[..., : x.shape[-1]]
    if x.dim() in FORMATS:
        yield "channels_last", x.contiguous(memory_format=FORMATS[x.dim()])


def gradients(module, call, x, grad):
    y = call(x)
    return [y, *torch.autograd.grad(y, [x, *module.parameters()], grad.to(y.dtype))]


@pytest.fixture
def support(packages, monkeypatch):
    """memory_formats.py of a chain's package, whose kernel copies the smallest tensors, too."""

    def patched(chain):
        module = part_of_support(packages(chain)[1], "memory_formats")
        for limit in ("_LEAST_BYTES", "_LEAST_IMAGE"):
            monkeypatch.setattr(module, limit, 0)
        return module

    return patched


@pytest.mark.parametrize("last", [False, True], ids=["contiguous weight", "weight in channels_last"])
@pytest.mark.parametrize("name", LAYERS)
def test_the_gradient_of_the_weight_has_contiguous_operands(packages, support, name, last) -> None:
    """So has that of x with three dimensions of positions; else it has the forward pass's, in channels_last. Values and
    formats are eager's."""
    layer = LAYERS[name]
    fused, is_last = layer.module(packages), support(layer.chain).is_last
    if last and len(layer.positions) > 1:
        fused.conv.to(memory_format=FORMATS[len(layer.positions) + 2])
    exact = copy.deepcopy(fused).double()
    for kind, x in formats_of(layer.x()):
        x.requires_grad_()
        grad = torch.randn_like(fused(x))
        with Operands(is_last) as seen:
            mine = gradients(fused, fused, x, grad)
        theirs = gradients(exact, exact.fusegen_reference, x.detach().double().requires_grad_(), grad)
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)
        assert seen.forward == [True], kind
        assert [each[:2] for each in seen.backward] == [[x.dim() != 5] * 2, [False, False]], kind
        assert seen.wanted == [[True, False, False], [False, True, False]]
        if fused.conv.padding_mode == "zeros":  # else x is what F.pad makes, and so is the gradient's format
            assert is_last(mine[1]) == (is_last(x) or is_last(fused.conv.weight)), kind


@pytest.mark.parametrize("name", ["1d", "2d", "3d"])
def test_the_kernel_copies(packages, support, name) -> None:
    """x once, forwards, and the gradient once: PyTorch copies neither, and x itself is what is saved."""
    layer = LAYERS[name]
    fused, is_last = layer.module(packages), support(layer.chain).is_last
    x, saved = layer.x().requires_grad_(), []
    with Operands(is_last) as seen:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
            y = fused(x)
        torch.autograd.grad(y, [x, *fused.parameters()], torch.ones_like(y))
    assert not {x.numel(), y.numel()} & {*seen.copies}
    assert x.data_ptr() in [each.data_ptr() for each in saved]


@pytest.mark.parametrize(
    ("dtype", "groups", "kernel"),
    [
        (torch.bfloat16, CHANNELS, (3, 2)),
        (torch.float32, 2, (3, 2)),
        (torch.float32, CHANNELS, (3, 3)),
        (torch.float32, CHANNELS, (5, 5)),
    ],
)
def test_others_are_made_in_channels_last(packages, support, dtype, groups, kernel) -> None:
    layer = LAYERS["2d, circular"]._replace(kernel=kernel)
    fused = layer.module(packages, dtype, groups)
    with Operands(support(layer.chain).is_last) as seen:
        y = fused(layer.x(dtype).requires_grad_())
        torch.autograd.grad(y, fused.conv.weight, torch.ones_like(y))
    assert seen.forward == [True] and [each[:2] for each in seen.backward] == [[True, True]]


@pytest.mark.parametrize("largest", ["x", "the result"])
def test_more_elements_than_pytorch_counts(packages, support, monkeypatch, largest) -> None:
    layer = LAYERS["2d"]
    fused, x = layer.module(packages), layer.x().requires_grad_()
    fused.conv.stride = (4, 8) if largest == "x" else (1, 1)
    count = max(x.numel(), fused(x).numel())
    assert (count == x.numel()) == (largest == "x")
    module = part_of_support(packages(layer.chain)[1], "depthwise")
    for most, is_last in ((count, False), (count - 1, True)):
        monkeypatch.setattr(module, "_MOST", most)
        with Operands(support(layer.chain).is_last) as seen:
            fused(x).sum().backward()
        assert seen.backward[-1][:2] == [is_last, is_last]


def test_padding_that_is_odd(packages, support) -> None:
    """PyTorch pads x at its end; so is the gradient's."""
    layer = LAYERS["2d"]
    fused = layer.module(packages)
    fused.conv = nn.Conv2d(CHANNELS, 2 * CHANNELS, (4, 2), padding="same", groups=CHANNELS, dilation=(1, 3))
    exact, x = copy.deepcopy(fused).double(), layer.x()
    grad = torch.randn_like(fused(x))
    with Operands(support(layer.chain).is_last) as seen:
        mine = gradients(fused, fused, x.requires_grad_(), grad)
    theirs = gradients(exact, exact.fusegen_reference, x.detach().double().requires_grad_(), grad)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)
    assert [each[:2] for each in seen.backward] == [[True, True], [False, False]]


def test_only_the_gradients_that_are_wanted(packages, support) -> None:
    layer = LAYERS["2d"]
    fused, is_last = layer.module(packages), support(layer.chain).is_last
    for of_x, of_weight in ((True, False), (False, True)):
        fused.conv.weight.requires_grad_(of_weight)
        with Operands(is_last) as seen:
            fused(layer.x().requires_grad_(of_x)).sum().backward()
        assert seen.wanted == [[of_x, of_weight, False]]
    fused.requires_grad_(False)
    with Operands(is_last) as seen:
        assert not fused(layer.x()).requires_grad
    assert seen.forward == [True]


@pytest.mark.parametrize("name", ["1d", "2d", "3d"])
def test_torch_compile_without_graph_break(packages, name) -> None:
    layer = LAYERS[name]
    fused, is_last = layer.module(packages), part_of_support(packages(layer.chain)[1], "memory_formats").is_last
    x = layer.x().requires_grad_()
    grad = torch.randn_like(fused(x))
    compiled = torch.compile(copy.deepcopy(fused), fullgraph=True, backend="aot_eager")
    gradients(compiled, compiled, x, grad)  # which compiles the backward pass, too
    y = compiled(x)
    with Operands(is_last) as seen:
        made = [y, *torch.autograd.grad(y, [x, *compiled.parameters()], grad)]
    for mine, theirs in zip(made, gradients(fused, fused, x, grad), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    assert [each[1:] for each in seen.backward] == [[False, False]]  # PyTorch brings the gradient into their format
