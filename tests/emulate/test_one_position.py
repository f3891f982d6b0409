"""Convolutions whose kernel has one position: products of matrices, of contiguous inputs as they are."""

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

CHANNELS, WIDTH = 16, 24


class Layer(NamedTuple):
    """Takes the place of a chain's convolution. constructed: what the module is made with."""

    chain: str
    constructed: tuple
    kind: type
    positions: tuple[int, ...]
    options: dict = {}
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)

    def module(self, packages, dtype=torch.float32):
        torch.manual_seed(3)
        fused = packages(self.chain)[1](*self.constructed)
        width = CHANNELS if self.chain == "one_dimension" else WIDTH
        name = "conv_transpose" if self.kind.__name__.startswith("ConvT") else "conv"
        setattr(fused, name, self.kind(CHANNELS, width, 1, **self.options))
        fused.fusegen_strict = True
        return fused.to(dtype)

    def x(self, dtype=torch.float32):
        return torch.randn(2, CHANNELS, *self.positions, dtype=dtype).requires_grad_()


BOTH = (torch.float32, torch.bfloat16)
TWO = Layer("batch_norm_scaling", (CHANNELS, WIDTH, 3, 2.0), nn.Conv2d, (4, 6), {"dilation": (1, 2)}, BOTH)
LAYERS = {
    "1d": Layer("one_dimension", (CHANNELS,), nn.Conv1d, (24,), {"padding": "same"}),
    "2d": TWO,
    "2d, circular": TWO._replace(options={"padding_mode": "circular"}, dtypes=BOTH[:1]),
    "3d": Layer("four_activations", (CHANNELS, WIDTH, 3, (WIDTH, 1, 1, 1)), nn.Conv3d, (2, 3, 4), {"padding": "valid"}),
    "2d, transposed": Layer(
        "transposed_tanh", (CHANNELS, WIDTH, 3, 1, 0, 0, (WIDTH, 1, 1)), nn.ConvTranspose2d, (4, 6)
    ),
}


class Products(TorchDispatchMode):
    """Counts convolutions, products, and convolutions' gradients with what is wanted of them."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions, self.products, self.gradients = 0, 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.convolutions += func is torch.ops.aten.convolution.default
        self.products += func is torch.ops.aten.bmm.out
        if func is torch.ops.aten.convolution_backward.default:
            self.gradients.append(list(args[-1][:2]))
        return func(*args, **(kwargs or {}))

    @property
    def seen(self):
        return self.convolutions, self.products, self.gradients


def settings(matmul, convolution):
    torch.backends.cuda.matmul.fp32_precision = matmul
    torch.backends.cudnn.conv.fp32_precision = convolution


@pytest.fixture
def alike(packages):
    """Whether both libraries compute alike in a dtype. The settings are PyTorch's again afterwards."""
    before = torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision
    settings("ieee", "ieee")
    yield part_of_support(packages(TWO.chain)[1], "one_position")._is_alike
    settings(*before)


@pytest.fixture
def small(packages, alike, monkeypatch):
    """Has a chain's package make products of the smallest images, too."""

    def patched(chain):
        module = part_of_support(packages(chain)[1], "one_position")
        for limit, value in (("_LEAST_POSITIONS", 0), ("_LEAST_RESULTS", 0), ("_MOST_IDLE", 100)):
            monkeypatch.setattr(module, limit, value)

    return patched


def gradients(module, call, x, grad=None):
    y = call(x)
    grad = torch.randn_like(y) if grad is None else grad.to(y.dtype)
    return [y, *torch.autograd.grad(y, [x, *module.parameters()], grad)], grad


def check(fused, x, tolerance, products):
    """Results and gradients beside those in float64. products: whether they are made; all are contiguous then."""
    exact = copy.deepcopy(fused).double()
    with Products() as calls:
        mine, grad = gradients(fused, fused, x)
    assert calls.seen == ((0, 2, [[False, True]]) if products else (1, 0, [[True, True]]))
    theirs, _ = gradients(exact, exact.fusegen_reference, x.detach().double().requires_grad_(), grad)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=tolerance, atol=tolerance)
    if products:
        assert mine[0].is_contiguous() and (mine[1].is_contiguous() or x.dim() == 3)  # x is a residual there
    with torch.no_grad(), Products() as calls:
        fused(x)
    assert calls.seen == ((0, 1, []) if products else (1, 0, []))


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, each in LAYERS.items() for d in each.dtypes], ids=str)
def test_a_contiguous_input_is_multiplied_as_it_is(packages, small, name, dtype) -> None:
    """With and without autograd. Inputs in other formats are convolved as ever."""
    layer, tolerance = LAYERS[name], 1e-4 if dtype == torch.float32 else 0.1
    small(layer.chain)
    fused, x = layer.module(packages, dtype), layer.x(dtype)
    check(fused, x, tolerance, True)
    if "circular" not in name:  # F.pad makes a contiguous tensor of others
        check(fused, torch.cat([x, x]).detach()[::2].requires_grad_(), tolerance, False)
        if x.dim() in FORMATS:
            check(fused, x.detach().contiguous(memory_format=FORMATS[x.dim()]).requires_grad_(), tolerance, False)
            weight = next(each for each in fused.modules() if isinstance(each, layer.kind)).weight
            weight.data = (
                weight.data.movedim(1, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 1)
            )  # PyTorch tells formats by strides
            check(fused, x, tolerance, False)


@pytest.mark.parametrize("name", ["1d", "2d"])
def test_only_the_gradients_that_are_wanted(packages, small, name) -> None:
    """A weight that is frozen needs no copy of x at all, and autograd keeps x itself."""
    layer = LAYERS[name]
    small(layer.chain)
    fused, saved = layer.module(packages), []
    fused.requires_grad_(False)
    x = layer.x()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = fused(x)
    assert x.data_ptr() in [each.data_ptr() for each in saved]
    with Products() as calls:
        y.sum().backward()
    assert calls.seen == (0, 1, []) and x.grad.is_contiguous()
    fused.conv.weight.requires_grad_()
    with Products() as calls:
        fused(x.detach()).sum().backward()
    assert calls.seen == (0, 1, [[False, True]])


def test_under_autocast(packages, small) -> None:
    """What is cast is copied in any case; what has the dtype is not, nor cast."""
    small(TWO.chain)
    fused = TWO.module(packages)
    for x, products in ((TWO.x(), False), (TWO.x(torch.bfloat16), True)):
        with Products() as calls, torch.autocast("cpu", torch.bfloat16):
            mine, grad = gradients(fused, fused, x)
        assert calls.seen == ((0, 2, [[False, True]]) if products else (1, 0, [[True, True]]))
        exact = copy.deepcopy(fused).double()
        theirs, _ = gradients(exact, exact.fusegen_reference, x.detach().double().requires_grad_(), grad)
        with torch.autocast("cpu", torch.bfloat16):
            eager, _ = gradients(fused, fused.fusegen_reference, x, grad)
        for a, e, b in zip(mine, eager, theirs, strict=True):
            allowed = 2 * (e.double() - b).abs().max() + torch.finfo(torch.bfloat16).eps * b.abs().max()
            assert (a.double() - b).abs().max() <= allowed


OTHERS = {
    "a kernel of more": {"kernel_size": (1, 3)},
    "a stride": {"stride": (1, 2)},
    "padding": {"padding": (0, 1)},
    "groups": {"groups": 2},
    "channels of no whole vectors": {"out_channels": 6},
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_convolutions(packages, small, kind) -> None:
    small(TWO.chain)
    fused = TWO.module(packages)
    given = {"in_channels": CHANNELS, "out_channels": WIDTH, "kernel_size": 1} | OTHERS[kind]
    fused.conv, fused.bn = nn.Conv2d(**given), nn.BatchNorm2d(given["out_channels"])
    with torch.no_grad(), Products() as calls:
        fused(TWO.x())
    assert calls.seen == (1, 0, [])


def test_other_sizes(packages, alike, monkeypatch) -> None:
    """Positions of no whole vectors, few of them, many of the last block's without a row, few results."""
    module = part_of_support(packages(TWO.chain)[1], "one_position")
    conv = nn.Conv2d(512, 256, 1)

    def is_product(batch, *positions, dtype=torch.bfloat16):
        x = torch.empty(batch, 512, *positions, dtype=dtype)
        return module.is_product(conv, x, conv.weight, dtype)

    assert is_product(32, 16, 16) and not is_product(31, 16, 16) and not is_product(64, 8, 8)
    assert is_product(16, 28, 28) and not is_product(32, 8, 33)
    assert not is_product(16, 28, 27) and is_product(16, 28, 27, dtype=torch.float32)
    assert not is_product(0, 28, 28)
    with torch.no_grad():
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert not is_product(32, 16, 16)


def test_precisions_of_both_libraries(alike) -> None:
    for matmul in ("ieee", "tf32"):
        for convolution in ("ieee", "tf32"):
            settings(matmul, convolution)
            assert alike(torch.float32) == (matmul == convolution)
            assert alike(torch.bfloat16) and alike(torch.float16)
    settings("none", "tf32")  # as PyTorch begins
    assert not alike(torch.float32)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert alike(torch.float32)
    with torch.backends.cudnn.flags(enabled=False):
        assert not alike(torch.bfloat16)
    torch.backends.cuda.matmul.allow_fp16_accumulation = True
    try:
        assert not alike(torch.float16) and alike(torch.bfloat16)
    finally:
        torch.backends.cuda.matmul.allow_fp16_accumulation = False


def test_deterministic_algorithms(alike) -> None:
    """PyTorch refuses products there unless cuBLAS has a workspace for each stream; convolutions it takes."""
    torch.use_deterministic_algorithms(True)
    try:
        assert not alike(torch.bfloat16)
    finally:
        torch.use_deterministic_algorithms(False)


def test_settings_that_change_before_the_backward_pass(packages, small, alike) -> None:
    small(TWO.chain)
    fused, x = TWO.module(packages), TWO.x()
    with Products() as calls:
        y = fused(x)
        settings("ieee", "tf32")
        mine = torch.autograd.grad(y, [x, fused.conv.weight], torch.ones_like(y) * y.detach())
    assert calls.seen == (0, 1, [[True, True]])
    y = fused.fusegen_reference(x)
    theirs = torch.autograd.grad(y, [x, fused.conv.weight], torch.ones_like(y) * y.detach())
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
