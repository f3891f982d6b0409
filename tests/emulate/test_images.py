"""Chains of images that begin with an input: batch norm over (N, C, L), NCHW and NCDHW, beside torch.nn's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.verify.checks import behaviour, formats, memory, operators  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.checks.training import compare_steps  # noqa: E402
from fusegen.verify.runs.run import mark_images, run  # noqa: E402
from fusegen.verify.subjects.subject import spread_out  # noqa: E402
from tests.emulate.building import write  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

NAMES = ("d", "h", "w")
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


class Original(nn.Module):
    def __init__(self, chain: Chain, channels: int) -> None:
        super().__init__()
        for name, layer in chain.layers(channels).items():
            setattr(self, name, layer)
        self.tail = chain.tail

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.tail(self, *inputs)


@dataclass(frozen=True)
class Chain:
    """spatial: dimensions of positions. inputs: of the spec, besides x. sizes: of the inputs, for a batch, channels and
    positions. tail: the original's forward. has_contiguous_layout: whether kernels read and write contiguous images
    themselves. keeps_format: whether PyTorch's result has the strides of x: a softmax's is contiguous."""

    spatial: int
    steps: tuple[str, ...]
    layers: Callable[[int], dict[str, nn.Module]]
    tail: Callable[..., Tensor]
    inputs: tuple[str, ...] = ()
    parts: int = 1
    dtypes: str = "float32"
    has_contiguous_layout: bool = True
    keeps_format: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES[-self.spatial :]

    def spec(self, name: str) -> str:
        sizes = zip(("n", "c", *self.names), (6, 24, 7, 5, 3), strict=False)
        dims = ", ".join(f"{each}: {size}" for each, size in sizes)
        form = ", ".join(self.names)
        first = f"x: [n, {'c' if self.parts == 1 else f'{self.parts} * c'}, {form}]"
        others = "".join(f", {each}" for each in self.inputs).replace("...", form)
        chain = "".join(f"  - {{op: {step}}}\n" for step in self.steps)
        return (
            f"fusegen: 1\nname: {name}\ndims: {{{dims}}}\narguments: {{c: {{type: dim}}}}\n"
            f"inputs: {{{first}{others}}}\ndtypes: [{self.dtypes}]\nchain:\n{chain}"
        )

    def drawn(self, batch: int, channels: int, positions: tuple[int, ...]) -> list[Tensor]:
        known = {"n": batch, "c": channels, "1": 1, **dict(zip(self.names, positions, strict=True))}
        torch.manual_seed(3)
        found = [torch.randn(batch, self.parts * channels, *positions)]
        for each in self.inputs:
            sizes = each.partition("[")[2].rstrip("]").replace("...", ", ".join(self.names)).split(", ")
            found.append(torch.randn([known[size] for size in sizes]))
        return found


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
SIZES = {
    "odd": (3, 24, (5, 7, 3)),
    "one channel": (4, 1, (3, 5, 2)),
    "one position": (5, 24, (1, 1, 1)),
    "a batch of one": (1, 40, (3, 1, 5)),
    "whole vectors": (2, 32, (4, 4, 4)),
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    """The class of a chain, which is compiled when it is asked for first."""
    root, known = tmp_path_factory.mktemp("images"), {}

    def package(name):
        if name not in known:
            plan = write(f"images_{name}", CHAINS[name].spec(f"images_{name}"), root)
            module = emulate_package(root / plan.spec.name, cache=emulation_cache)
            known[name] = getattr(module, plan.spec.class_name)
        return known[name]

    return package


def pair(packages, name, channels=24, dtype=torch.float32):
    torch.manual_seed(7)
    original, fused = Original(CHAINS[name], channels), packages(name)(channels)
    spread_out(original)
    fused.load_state_dict(original.state_dict())
    fused.fusegen_strict = True
    mark_images(original, fused)
    return fused.to(dtype), original.to(dtype)


def drawn(name, size="odd", dtype=torch.float32, last=False):
    chain, (batch, channels, positions) = CHAINS[name], SIZES[size]
    found = [each.to(dtype) for each in chain.drawn(batch, channels, positions[: chain.spatial])]
    if last:
        found = [each.contiguous(memory_format=LAST[each.dim()]) if each.dim() in LAST else each for each in found]
    return [each.requires_grad_() for each in found]


def failures(comparisons):
    return [item for item in comparisons if not item.ok]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CHAINS)
def test_as_accurate_as_eager(packages, name, size) -> None:
    """Results, all gradients and running statistics, in both memory formats, which the result keeps."""
    fused, original = pair(packages, name, SIZES[size][1])
    for last in (False, True) if CHAINS[name].spatial > 1 else (False,):
        inputs = drawn(name, size, last=last)
        for train in (True, False):
            assert not failures(compare_module(fused, original, inputs, train=train))
            assert fused.train(train).fusegen_kernels(*inputs)
            theirs, mine = (run(module, inputs, None, train=train).output for module in (original, fused))
            if CHAINS[name].keeps_format and 1 not in theirs.shape:
                assert theirs.stride() == mine.stride()


def test_in_16_bits_and_under_autocast(packages) -> None:
    fused, original = pair(packages, "residual")
    for autocast in (None, torch.bfloat16):
        dtype = torch.float32 if autocast else torch.bfloat16
        fused, original = fused.to(dtype), original.to(dtype)
        for last in (False, True):
            inputs = drawn("residual", dtype=dtype, last=last)
            for train in (True, False):
                assert not failures(compare_module(fused, original, inputs, autocast_dtype=autocast, train=train))


@pytest.mark.parametrize("name", CHAINS)
def test_same_state_from_the_same_seed(packages, name) -> None:
    """The layers are those of torch.nn for so many positions."""
    original, fused = Original(CHAINS[name], 24), packages(name)(24)
    assert [type(each) for each in fused.children()] == [type(each) for each in original.children()]
    assert list(fused.state_dict()) == list(original.state_dict())


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_contiguous_is_not_copied(packages, name) -> None:
    """The kernels take images as they are, unless a row is reduced or has a value of its own."""
    fused, _ = pair(packages, name)
    inputs = drawn(name)
    seen = []

    class Ours(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.namespace == "fusegen":
                seen.append(args[0])
            return func(*args, **(kwargs or {}))

    with Ours():
        y = fused(*inputs)
        torch.autograd.grad(y, inputs, torch.ones_like(y))
    (source, gradient) = seen
    assert {source.dim(), gradient.dim()} == {3 if CHAINS[name].has_contiguous_layout else 2}
    assert (source.data_ptr() == inputs[0].data_ptr()) == CHAINS[name].has_contiguous_layout and y.is_contiguous()


@pytest.mark.parametrize("name", ["residual", "sequence", "halves"])
@pytest.mark.parametrize(
    "check",
    [formats.memory_formats, behaviour.strides, behaviour.frozen, behaviour.inputs_untouched, memory.footprint,
     operators.opcheck],
    ids=lambda check: check.__name__,
)  # fmt: skip
def test_behaviour(packages, name, check) -> None:
    fused, original = pair(packages, name)
    fused.fusegen_strict = False  # other numbers of dimensions are PyTorch's operators' business
    assert not failures(check(fused, original, drawn(name)))


def test_training(packages) -> None:
    fused, original = pair(packages, "residual")
    batches = [[torch.randn_like(x) for x in drawn("residual")] for _ in range(3)]
    assert not failures(compare_steps(fused, original, batches))


def test_tensors_anywhere(packages) -> None:
    """Inputs that begin within a vector, that are in the other format, and that are views with gaps."""
    fused, _ = pair(packages, "residual")
    x, y = (each.detach() for each in drawn("residual", "whole vectors"))
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
    fused, original = pair(packages, "sequence")
    fused.fusegen_strict = False
    x, gate = torch.randn(24, 24), torch.randn(24, 24, 1)
    with pytest.warns(UserWarning, match="other dimensions than the spec gives it"):
        made = fused.eval()(x, gate)
    torch.testing.assert_close(made, original.eval()(x, gate))
    fused, _ = pair(packages, "residual")
    with pytest.raises(ValueError, match="must be \\[batch, 24, height, width\\], got \\[2, 23, 3, 3\\]"):
        fused(torch.randn(2, 23, 3, 3), torch.randn(2, 23, 3, 3))
    assert not fused.fusegen_kernels(torch.randn(1, 24, 1, 1), torch.randn(1, 24, 1, 1))
