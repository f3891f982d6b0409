"""Convolutions of few channels in 16 bits: the forward pass has zeros beside them, and no gradient has."""

from __future__ import annotations

import copy
from functools import partial
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from tests.emulate.building import write  # noqa: E402
from tests.emulate.convolutions import KEEPS_FORMAT_IN_16_BITS, part_of_support  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

POSITIONS = ("depth", "height", "width")
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def spec(dimensions):
    names, dtypes = POSITIONS[-dimensions:], "float32, bfloat16" + ", float16" * (dimensions > 1)
    sizes = ", ".join(f"{name}: 16" for name in names)
    return (
        f"fusegen: 1\nname: few_{dimensions}d\ndims: {{batch: 2, channels: 8, out: 32, {sizes}}}\n"
        "arguments: {channels: {type: dim}, out: {type: dim}}\n"
        f"inputs: {{x: [batch, channels, {', '.join(names)}]}}\ndtypes: [{dtypes}]\nchain:\n"
        f"  - {{op: conv{dimensions}d, name: conv, out_channels: out, kernel_size: 3}}\n  - {{op: silu}}\n"
    )


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    root, known = tmp_path_factory.mktemp("few"), {}

    def package(dimensions):
        if dimensions not in known:
            plan = write(f"few_{dimensions}d", spec(dimensions), root)
            module = emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)
            known[dimensions] = getattr(module, plan.spec.class_name)
        return known[dimensions]

    return package


@pytest.fixture(autouse=True)
def small(packages, monkeypatch):
    """What is small is copied by the kernel, too."""
    module = part_of_support(packages(2), "memory_formats")
    for limit in ("_LEAST_BYTES", "_LEAST_IMAGE"):
        monkeypatch.setattr(module, limit, 0)


class Layer(NamedTuple):
    channels: int
    out: int
    positions: tuple[int, ...]
    kernel: int | tuple[int, ...] = 3
    options: dict = {"padding": 1}
    dtype: str = "bfloat16"

    def module(self, packages, dtype=None):
        torch.manual_seed(3)
        dimensions = len(self.positions)
        fused = packages(dimensions)(self.channels, self.out)
        fused.conv = CONVOLUTIONS[dimensions](self.channels, self.out, self.kernel, **self.options)
        fused.fusegen_strict = True
        return fused.to(dtype or TYPES[self.dtype])

    def x(self, dtype=None):
        torch.manual_seed(4)
        return torch.randn(2, self.channels, *self.positions).to(dtype or TYPES[self.dtype])

    @property
    def padded(self):
        return -(-self.channels // 32) * 32


LAYERS = {
    "1d": Layer(3, 40, (37,), 9, {"padding": 4}),
    "1d, same": Layer(24, 32, (30,), 10, {"padding": "same"}),
    "2d": Layer(8, 32, (7, 9)),
    "2d, 40 channels": Layer(40, 64, (6, 5), 3, {"padding": "valid"}),
    "2d, circular": Layer(3, 32, (7, 8), (9, 1), {"padding": (4, 0), "padding_mode": "circular"}),
    "2d, float16": Layer(12, 32, (7, 8), 5, {"padding": 2}, "float16"),
    "3d": Layer(5, 32, (3, 4, 5)),
}
# Without autograd, and of a contiguous x, there is no further copy that has to gain more than its time.
INSTEAD = {"16 channels": Layer(16, 32, (7, 9))}


class Operands(TorchDispatchMode):
    """Notes the operands of convolutions and gradients, what is copied, and the ops of packages that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.forward, self.backward, self.copies, self.ours = [], [], [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            self.forward.append([each.shape[1] for each in args[:2]])
        if func is torch.ops.aten.convolution_backward.default:
            self.backward.append([each.shape[1] for each in args[1:3]])
            self.x = args[1]
        if func in (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            self.copies.append(args[0].numel())
        if func.namespace == "fusegen":
            self.ours.append(next((each for each in ("copy_images", "pad_images") if each in str(func)), "tail"))
        return func(*args, **(kwargs or {}))


def formats_of(x):
    yield "contiguous", x
    yield "a part", torch.cat([x, x], -1)[..., : x.shape[-1]]
    if x.dim() > 3:
        yield "channels_last", x.movedim(1, -1).contiguous().movedim(-1, 1)


def assert_near(mine, exact, dtype):
    """Within the rounding of the operands, the product and the result."""
    scale = exact.abs().max().item()
    torch.testing.assert_close(mine.double(), exact, rtol=0, atol=4 * scale * torch.finfo(dtype).eps)


@pytest.mark.parametrize("autocast", [False, True], ids=["", "autocast"])
@pytest.mark.parametrize("name", [*LAYERS, *INSTEAD])
def test_the_result(packages, monkeypatch, name, autocast) -> None:
    """It has eager's value, and the strides that it has without zeros. x and the weight are copied once each."""
    layer = (LAYERS | INSTEAD)[name]
    dtype = TYPES[layer.dtype]
    fused = layer.module(packages, torch.float32 if autocast else None)
    exact = copy.deepcopy(fused).double()
    for kind, x in formats_of(layer.x(torch.float32 if autocast else None)):
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast), Operands() as seen:
            made = fused(x)
        is_padded = name in LAYERS or (kind == "contiguous" and layer.options.get("padding_mode") is None)
        assert seen.forward == [[layer.padded if is_padded else layer.channels] * 2], kind
        plain = kind != "a part" and "padding_mode" not in layer.options and layer.kernel != 10
        if is_padded and plain and (KEEPS_FORMAT_IN_16_BITS or len(layer.positions) < 3):
            assert seen.ours == ["pad_images", "pad_images", "tail"] and not {x.numel(), made.numel()} & {*seen.copies}
        assert_near(made, exact.fusegen_reference(x.double()), dtype)
        with monkeypatch.context() as patch, torch.no_grad(), torch.autocast("cpu", dtype, enabled=autocast):
            patch.setattr(part_of_support(type(fused), "convolution"), "padded_channels", lambda *_, **__: 0)
            assert made.stride() == fused(x).stride(), kind


@pytest.mark.parametrize("last", [False, True], ids=["contiguous weight", "weight in channels_last"])
@pytest.mark.parametrize("autocast", [False, True], ids=["", "autocast"])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients(packages, name, autocast, last) -> None:
    """They are those of the operands without zeros, in the formats that they have without this."""
    layer = LAYERS[name]
    dtype = TYPES[layer.dtype]
    fused = layer.module(packages, torch.float32 if autocast else None)
    if last and len(layer.positions) > 1:
        fused.conv.to(memory_format=[torch.channels_last, torch.channels_last_3d][len(layer.positions) - 2])
    exact = copy.deepcopy(fused).double()
    for kind, x in formats_of(layer.x(torch.float32 if autocast else None)):
        x.requires_grad_()
        with torch.autocast("cpu", dtype, enabled=autocast), Operands() as seen:
            y = fused(x)
        grad = torch.randn_like(y)
        with seen:
            mine = [y, *torch.autograd.grad(y, [x, *fused.parameters()], grad)]
        given = x.detach().double().requires_grad_()
        theirs = exact.fusegen_reference(given)
        theirs = [theirs, *torch.autograd.grad(theirs, [given, *exact.parameters()], grad.double())]
        for a, b in zip(mine, theirs, strict=True):
            assert_near(a, b, dtype)
        assert seen.forward == [[layer.padded] * 2] and seen.backward == [[layer.channels] * 2], kind
        assert seen.x.movedim(1, -1).is_contiguous()


def kept(saved, tensor):
    saved.append(tensor)
    return tensor


def convolved(fused, x, dtype, grad_last=True):
    """support/convolution.py of a package, and a call of the convolution alone."""
    support, package = part_of_support(type(fused), "convolution"), type(fused)._fusegen_package
    made = support.Convolved(fused.conv, x, fused.conv.weight, dtype)
    return support, lambda: support._convolve(package, support._padded(made), grad_last)


@pytest.mark.parametrize("grad_last", [False, True], ids=["contiguous gradients", "gradients in channels_last"])
@pytest.mark.parametrize("name", LAYERS)
def test_beside_the_same_without_zeros(packages, monkeypatch, name, grad_last) -> None:
    """The gradients are the same bits, in the same formats, and autograd saves as much as without zeros."""
    layer = LAYERS[name]
    fused = layer.module(packages)
    for kind, x in formats_of(layer.x()):
        x.requires_grad_()
        found = []
        for zeros in (True, False):
            saved = []
            module, call = convolved(fused, x, x.dtype, grad_last)
            with monkeypatch.context() as patch, Operands() as seen:
                if not zeros:
                    patch.setattr(module, "padded_channels", lambda *_, **__: 0)
                with torch.autograd.graph.saved_tensors_hooks(partial(kept, saved), lambda t: t):
                    y = call()
                grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
                grad = torch.empty_like(y).copy_(grad)
                gradients = torch.autograd.grad(y, [x, fused.conv.weight], grad)
            copies = kind == "contiguous" or "padding_mode" in layer.options or (zeros and layer.kernel == 10)
            assert seen.ours.count("pad_images") == 2 * zeros, kind
            if grad_last:  # else gradients are copied, too
                assert seen.ours.count("copy_images") == copies, kind
            found.append((y, gradients, [(t.shape, t.stride(), t.dtype) for t in saved]))
        (y, mine, saved), (other, theirs, saved_then) = found
        assert y.stride() == other.stride() and saved == saved_then, kind
        assert_near(y, other.double(), y.dtype)
        for a, b in zip(mine, theirs, strict=True):
            assert torch.equal(a, b) and a.stride() == b.stride(), kind


def test_only_the_gradients_that_are_wanted(packages) -> None:
    layer = LAYERS["2d"]
    fused, x = layer.module(packages), layer.x()
    fused.conv.weight.requires_grad_(False)
    (of_x,) = torch.autograd.grad(fused(x.requires_grad_()).sum(), [x])
    fused.conv.weight.requires_grad_()
    (of_weight,) = torch.autograd.grad(fused(x.detach()).sum(), [fused.conv.weight])
    both = torch.autograd.grad(fused(x).sum(), [x, fused.conv.weight])
    assert torch.equal(of_x, both[0]) and torch.equal(of_weight, both[1])


def test_second_derivatives_are_refused(packages) -> None:
    layer = LAYERS["2d"]
    fused, x = layer.module(packages), layer.x().requires_grad_()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(fused(x).float().sum(), [x], create_graph=True)
    _, call = convolved(fused, x, x.dtype)
    (grad,) = torch.autograd.grad(call().float().square().sum(), [x], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_torch_compile_makes_them_without_zeros(packages) -> None:
    layer = LAYERS["2d"]
    fused, x, seen = layer.module(packages), layer.x(), []
    compiled = torch.compile(
        copy.deepcopy(fused), fullgraph=True, backend=lambda graph, _: seen.append(graph.code) or graph.forward
    )
    with torch.no_grad():
        assert_near(compiled(x), fused(x).double(), x.dtype)
    assert "conv2d" in seen[0] and "pad_images" not in seen[0]
