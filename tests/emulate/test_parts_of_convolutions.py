"""Parts of a convolution's result, with contiguous results and gradients beside them, as users have them."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.verify.checks import operators  # noqa: E402
from fusegen.verify.checks.compared import compare_module  # noqa: E402
from fusegen.verify.subjects.subject import spread_out  # noqa: E402
from tests.emulate.building import write  # noqa: E402
from tests.emulate.convolutions import Calls, failures  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

_SPEC = """\
fusegen: 1
name: {name}
dims: {{batch: 4, c: 3, width: 8, {dims}}}
arguments: {{c: {{type: dim}}, width: {{type: dim}}}}
inputs: {{x: [batch, c, {names}]{more}}}
dtypes: [float32, bfloat16]
chain:
{steps}"""


class Gated(nn.Module):
    def __init__(self, c: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(c, 2 * width, 1)

    def forward(self, x):
        return F.glu(self.conv(x), dim=1)


class Several(nn.Module):
    """The third part gets no gradient, nothing uses the last one, and the sum has a norm."""

    def __init__(self, c: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c, 4 * width, 3, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x, other):
        a, b, c, _ = self.conv(x).chunk(4, dim=1)
        return torch.tanh(self.bn(F.silu(a) * b * c.detach() + other)) + b


@dataclass(frozen=True)
class Case:
    original: type[nn.Module]
    steps: tuple[str, ...]
    parts: int
    spatial: int
    lost: int = 0  # positions of each dimension that the convolution leaves out
    further: bool = False

    def spec(self, name: str) -> str:
        names, own = (["l", "h", "w"][-self.spatial :], ["ol", "oh", "ow"][-self.spatial :])
        dims = [f"{each}: 9" for each in names] + [f"{each}: {9 - self.lost}" for each in own] * self.further
        more = f", other: [batch, width, {', '.join(own)}]" if self.further else ""
        steps = "".join(f"  - {{op: {step}}}\n" for step in self.steps)
        return _SPEC.format(name=name, dims=", ".join(dims), names=", ".join(names), more=more, steps=steps)


CASES = {
    "parts_glu": Case(Gated, ("conv1d, name: conv, out_channels: 2 * width, kernel_size: 1", "glu"), 2, 1),
    "parts_several": Case(
        Several,
        (
            "conv2d, name: conv, out_channels: 4 * width, kernel_size: 3, bias: false",
            *("chunk, parts: [a, b, held, unused]", "silu", "mul, value: b", "mul, value: held, detach: true"),
            *("add, input: other", "batch_norm, name: bn", "tanh", "add, value: b"),
        ),
        4,
        2,
        lost=2,
        further=True,
    ),
}
# Batch, channels of a part, positions: vectors and no vectors of either, one channel, several tiles.
SIZES = [(2, 8, 9), (3, 5, 7), (1, 12, 12), (2, 1, 6), (2, 3, 5)]


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    root, known = tmp_path_factory.mktemp("parts"), {}

    def package(name):
        if name not in known:
            plan = write(name, CASES[name].spec(name), root)
            module = emulate_package(root / name, cache=emulation_cache, checked=False)
            known[name] = plan, getattr(module, plan.spec.class_name)
        return known[name]

    return package


def prepared(packages, name, size, dtype=torch.float32, last=False):
    """Both modules with one state, and inputs."""
    case, (batch, width, positions) = CASES[name], size
    torch.manual_seed(5)
    original, fused = case.original(3, width), packages(name)[1](3, width)
    spread_out(original)
    fused.load_state_dict(original.state_dict())
    fused.fusegen_strict = True
    shapes = [(batch, 3, *(positions,) * case.spatial)]
    shapes += [(batch, width, *(positions - case.lost,) * case.spatial)] * case.further
    inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
    if last:
        inputs = [each.contiguous(memory_format=torch.channels_last) for each in inputs]
    return fused.to(dtype), original.to(dtype), [each.requires_grad_() for each in inputs]


def results(call, module, inputs):
    y = call(*inputs)
    return [y, *torch.autograd.grad(y, [*inputs, *module.parameters()], torch.ones_like(y))]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_as_accurate_as_eager(packages, name, size) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for last in (False, True)[: CASES[name].spatial]:
            fused, original, inputs = prepared(packages, name, size, dtype, last)
            for train in (True, False):
                assert not failures(compare_module(fused, original, inputs, train=train))
                assert fused.train(train).fusegen_kernels(*inputs)


@pytest.mark.parametrize("name", CASES)
def test_nothing_of_that_size_is_copied(packages, name) -> None:
    """The kernels take the convolution's result as it is, and the others contiguous."""
    fused, _, inputs = prepared(packages, name, SIZES[0])
    with Calls() as calls:
        y = results(fused, fused, inputs)[0]
    batch, width, *positions = y.shape
    count = y[0, 0].numel()
    forward, backward = calls.ours
    for shapes in (forward, backward):
        assert (batch, count, CASES[name].parts * width) in shapes and (batch, width, count) in shapes
    assert not [shape for shape in calls.copies if shape.numel() in (y.numel(), CASES[name].parts * y.numel())]
    assert y.is_contiguous()


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_twice_and_traced(packages, name) -> None:
    fused, _, inputs = prepared(packages, name, SIZES[1])
    compiled = torch.compile(copy.deepcopy(fused), fullgraph=True, backend="aot_eager")
    first, second, traced = (results(each, each, inputs) for each in (copy.deepcopy(fused), fused, compiled))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    for mine, theirs in zip(first, traced, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
        assert mine.stride() == theirs.stride()


@pytest.mark.filterwarnings("ignore:.*TorchFunctionMode")
def test_what_tracers_are_told(packages) -> None:
    fused, _, inputs = prepared(packages, "parts_several", SIZES[1])
    fused.fusegen_strict = False
    assert not failures(operators.opcheck(fused, fused, inputs))


def test_channels_without_equal_parts_are_refused(packages) -> None:
    operator = packages("parts_glu")[1](3, 2)
    operator.conv = nn.Conv1d(3, 3, 1)
    operator.fusegen_strict = False
    assert "no equal parts" in operator.fusegen_kernels(torch.randn(2, 3, 4)).reason
