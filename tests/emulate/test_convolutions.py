"""Chains behind a convolution as users have them: PyTorch's convolution, binding and kernels, on the CPU."""

from __future__ import annotations

import copy
import sys

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, weight_norm  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.verify import behaviour, memory, operators  # noqa: E402
from fusegen.verify.compared import compare_module  # noqa: E402
from fusegen.verify.formats import memory_formats  # noqa: E402
from fusegen.verify.positions import result_positions  # noqa: E402
from fusegen.verify.subject import spread_out  # noqa: E402
from fusegen.verify.training import compare_steps  # noqa: E402
from tests.chains.convolutions import EXPRESSIBLE  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
# Batches and how many positions there are in each dimension beside the typical ones.
SIZES = {"typical": (2, 0), "a batch of one": (1, 2), "one position": (3, None)}
NARROW = [name for name, chain in EXPRESSIBLE.items() if "bfloat16" in chain.dtypes]


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    """The plan and the class of a chain, which is compiled when it is asked for first."""
    root, known = tmp_path_factory.mktemp("convolutions"), {}

    def package(name):
        if name not in known:
            plan = write(f"conv_{name}", EXPRESSIBLE[name].spec(f"conv_{name}"), root)
            modes = [mode.index for mode in plan.modes if mode.name != "float64"]
            module = emulate_package(root / plan.spec.name, cache=emulation_cache, modes=modes)
            known[name] = plan, getattr(module, plan.spec.class_name)
        return known[name]

    return package


def pair(packages, name, dtype=torch.float32):
    """Generated and original module with the same random state."""
    chain = EXPRESSIBLE[name]
    _, cls = packages(name)
    torch.manual_seed(7)
    original, fused = chain.original(*chain.constructed), cls(*chain.constructed)
    spread_out(original)
    fused.load_state_dict(original.state_dict())
    fused.fusegen_strict = True
    return fused.to(dtype), original.to(dtype)


def drawn(packages, name, size="typical", dtype=torch.float32, last=False):
    """Inputs of a chain."""
    chain, (plan, _) = EXPRESSIBLE[name], packages(name)
    batch, more = SIZES[size]
    symbols = {key: each.typical for key, each in plan.spec.arguments.items() if each.type == "int"}
    positions = tuple(n + (more or 0) for n in chain.typical[0])
    if more is None:
        positions = next(
            (n,) * chain.spatial
            for n in range(1, 9)
            if all(each > 0 for each in result_positions(plan, (n,) * chain.spatial, symbols))
        )
    shapes = [(batch, chain.channels[0], *positions)]
    if chain.further:
        shapes.append((batch, chain.channels[-1], *result_positions(plan, positions, symbols)))
    torch.manual_seed(8)
    tensors = [torch.randn(shape, dtype=dtype) for shape in shapes]
    if last:
        tensors = [each.contiguous(memory_format=FORMATS[each.dim()]) for each in tensors]
    return [each.requires_grad_() for each in tensors]


def failures(comparisons):
    return [item for item in comparisons if not item.ok]


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


class Calls(TorchDispatchMode):
    """Notes the shapes of tensors that are copied, and of those that fusegen's ops take and return."""

    def __init__(self) -> None:
        super().__init__()
        self.copies, self.ours = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            self.copies.append(args[0].shape)
        if func.namespace == "fusegen":
            tensors = [*args, *(made if isinstance(made, tuple | list) else [made])]
            self.ours.append([tuple(each.shape) for each in tensors if isinstance(each, torch.Tensor)])
        return made


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


OPTIONS = (
    ("conv", {"stride": (2, 1), "padding": (0, 2)}),
    ("conv", {"dilation": (1, 2), "groups": 2}),
    ("conv", {"padding": "same", "dilation": 2}),
    ("conv", {"padding": "valid"}),
    ("conv", {"padding": (2, 1), "padding_mode": "reflect", "stride": 2}),
    ("conv", {"padding": 1, "padding_mode": "circular"}),
    ("conv", {"padding": "same", "padding_mode": "replicate"}),
    ("conv", {"groups": 4}),
    ("conv_transpose", {"stride": (3, 1), "padding": (1, 2), "output_padding": (2, 0), "groups": 2}),
    ("conv_transpose", {"dilation": (1, 3), "groups": 4}),
)


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_a_layer_as_it_is_now(packages, name, options) -> None:
    """What its attributes say counts, as for PyTorch, not what the spec said."""
    torch.manual_seed(3)
    if name == "conv":
        fused, kind = packages("batch_norm_scaling")[1](4, 8, 3, 2.0), nn.Conv2d
    else:
        fused, kind = packages("transposed_tanh")[1](4, 8, 3, 1, 0, 0, (8, 1, 1)), nn.ConvTranspose2d
    setattr(fused, name, kind(4, 8, 3, **options))
    fused.fusegen_strict = True
    for last in (False, True):
        x = torch.randn(2, 4, 7, 8)
        x = (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_()
        exact, grad = copy.deepcopy(fused).double(), None
        results = []
        for call, given in ((fused, x), (exact.fusegen_reference, x.detach().double().requires_grad_())):
            y = call(given)
            grad = torch.randn_like(y) if grad is None else grad.to(y.dtype)
            module = fused if call is fused else exact
            results.append([y, *torch.autograd.grad(y, [given, *module.parameters()], grad)])
        for mine, theirs in zip(*results, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4)


PARAMETRISED = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "old weight norm": weight_norm,
}


@pytest.mark.parametrize("kind", PARAMETRISED)
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_a_weight_that_is_computed(packages, kind) -> None:
    """Gradients reach what it is computed of."""
    fused, _ = pair(packages, "relu_hardswish")
    PARAMETRISED[kind](fused.conv)
    (x,) = drawn(packages, "relu_hardswish", last=True)
    assert fused.fusegen_kernels(x)
    state, results = copy.deepcopy(fused.state_dict()), []
    for call in (fused, fused.fusegen_reference):
        fused.load_state_dict(state)
        y = call(x)
        results.append([y, *torch.autograd.grad(y, [x, *fused.parameters()], torch.ones_like(y)), *fused.buffers()])
    assert len(results[0]) == len(list(fused.state_dict())) + 2
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


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
    convolved = part_of_support(cls, "convolution")._convolve(package, made)
    assert convolved.movedim(1, -1).is_contiguous()
    for given in (x, fused.conv.weight):
        assert formats.as_channels_last(package, given, torch.float32).stride(1) == 1


def formats_of(batch, channels, positions):
    """Tensors of this shape with all kinds of strides, each with what they are."""
    height, width = positions
    yield "contiguous", torch.randn(batch, channels, height, width)
    yield "channels_last", torch.randn(batch, height, width, channels).movedim(-1, 1)
    yield "some channels", torch.randn(batch, height, width, channels + 3)[..., :channels].movedim(-1, 1)
    yield "a part in channels_last", torch.randn(batch, height + 2, width, channels).movedim(-1, 1)[:, :, 1:-1]
    yield "a part of contiguous ones", torch.randn(batch, channels + 1, height, width + 2)[:, 1:, :, 1:-1]
    yield "positions exchanged", torch.randn(batch, channels, width, height).transpose(2, 3)
    yield "positions exchanged in channels_last", torch.randn(batch, width, height, channels).permute(0, 3, 2, 1)
    yield "one of a batch, expanded", torch.randn(1, channels, height, width).expand(batch, -1, -1, -1)
    yield "one channel, expanded", torch.randn(batch, 1, height, width).expand(-1, channels, -1, -1)


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


def test_batches_that_pytorch_refuses_are_not_counted(packages) -> None:
    """PyTorch's batch norm counts what the convolution has made."""
    fused, _ = pair(packages, "batch_norm_scaling")
    fused.bn.momentum, fused.fusegen_strict = None, False
    before = fused.bn.num_batches_tracked.clone()
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        fused(torch.randn(2, 3, 2, 9))
    assert torch.equal(fused.bn.num_batches_tracked, before)


def part_of_support(cls, name):
    """A file of support/ of a package."""
    support = sys.modules[cls.__module__]._support
    return sys.modules[f"{support.__name__}.{name}"]


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


def test_what_takes_the_place_of_the_layer(packages) -> None:
    fused, _ = pair(packages, "relu_hardswish")
    (x,) = drawn(packages, "relu_hardswish")

    class Another(nn.Conv2d):
        pass

    others = [Another(3, 8, 3), nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(3, 8, 3)]
    others[1]._conv_forward = lambda *_: None
    for other in others:
        changed = copy.deepcopy(fused)
        changed.conv = other
        assert not changed.fusegen_kernels(x)
    changed = copy.deepcopy(fused)
    changed.conv.stride = 2  # as F.conv2d takes it
    changed.fusegen_strict = False
    assert "options that Conv2d would not make" in changed.fusegen_kernels(x).reason
    fused.conv.register_forward_hook(lambda *_: None)
    assert fused.fusegen_kernels(x).reason == "conv has hooks"
    transposed, _ = pair(packages, "transposed_tanh")
    (x,) = drawn(packages, "transposed_tanh")
    transposed.conv_transpose.padding_mode = "circular"  # which PyTorch refuses
    assert "padding_mode" in transposed.fusegen_kernels(x).reason


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
