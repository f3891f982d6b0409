"""Pooling in the kernels of what is in front of it: every kind of window, as PyTorch has them."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from fusegen.verify.checks.compared import compare_module  # noqa: E402
from tests.emulate.building import write  # noqa: E402
from tests.emulate.convolutions import part_of_support  # noqa: E402
from tests.emulate.suites import compared, suites_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

HEAD = "arguments: {c: {type: dim}, out: {type: dim}}\n"
TWO = "dims: {n: 2, c: 3, out: 8, h: 9, w: 8}\ninputs: {x: [n, c, h, w]}\n" + HEAD
ONE = "dims: {n: 2, c: 3, out: 8, h: 9}\ninputs: {x: [n, c, h]}\n" + HEAD
THREE = "dims: {n: 2, c: 3, out: 8, d: 4, h: 5, w: 3}\ninputs: {x: [n, c, d, h, w]}\n" + HEAD
WITH_GATE = TWO.replace("x: [n, c, h, w]", "x: [n, c, h, w], gate: [n, 1, h, w]")
CHAINS = {
    "largest": TWO + """chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3, padding: 1}
  - {op: batch_norm, name: bn}
  - {op: silu}
  - {op: max_pool2d, name: pool, kernel_size: 2}
""",
    "means": TWO + """dtypes: [float32, bfloat16]
chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3, padding: 1}
  - {op: tanh}
  - {op: avg_pool2d, name: pool, kernel_size: 2}
""",
    "residual": TWO.replace("x: [n, c, h, w]", "x: [n, c, h, w], y: [n, out, h, w]") + """chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3, padding: 1}
  - {op: add, input: y}
  - {op: avg_pool2d, name: pool, kernel_size: 2}
""",
    "rows": WITH_GATE + """chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3, padding: 1, bias: false}
  - {op: softmax, dim: 1}
  - {op: mul, input: gate}
  - {op: dropout, name: drop, p: 0.3}
  - {op: max_pool2d, name: pool, kernel_size: 2}
""",
    "groups": THREE + """chain:
  - {op: conv3d, name: conv, out_channels: out, kernel_size: 3, padding: 1}
  - {op: group_norm, name: norm, num_groups: 4}
  - {op: relu}
  - {op: max_pool3d, name: pool, kernel_size: 2, padding: 1}
""",
    "line": ONE + """chain:
  - {op: conv1d, name: conv, out_channels: out, kernel_size: 3, padding: 1}
  - {op: gelu}
  - {op: avg_pool1d, name: pool, kernel_size: 3, stride: 2}
""",
}  # fmt: skip
LARGEST = {
    "apart": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "wide": {"kernel_size": (3, 4), "stride": 1, "padding": (1, 2)},
    "dilated": {"kernel_size": (2, 3), "stride": (3, 1), "dilation": (3, 2), "padding": (1, 0)},
    "beyond": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    "with gaps": {"kernel_size": 1, "stride": (3, 2)},
}
MEANS = {
    **{name: each for name, each in LARGEST.items() if "dilation" not in each},
    "zeros count": {"kernel_size": (3, 4), "stride": 2, "padding": (1, 2), "ceil_mode": True},
    "zeros do not": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
    "another divisor": {"kernel_size": 2, "stride": 1, "divisor_override": 3},
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory, emulation_cache):
    from fusegen.emulate.package import emulate_package

    root, known = tmp_path_factory.mktemp("windows"), {}

    def module(name, out=8, **options):
        if name not in known:
            text = CHAINS[name] if "dtypes" in CHAINS[name] else "dtypes: [float32]\n" + CHAINS[name]
            plan = write(f"windows_{name}", f"fusegen: 1\nname: windows_{name}\n{text}", root)
            package = emulate_package(root / plan.spec.name, cache=emulation_cache, checked=False)
            known[name] = getattr(package, plan.spec.class_name)
        torch.manual_seed(3)
        made = known[name](3, out)
        made.fusegen_strict = True
        if options:
            made.pool = type(made.pool)(**options)
        return made

    return module


class Original(nn.Module):
    """The chain in PyTorch's operators."""

    def __init__(self, fused: nn.Module) -> None:
        super().__init__()
        held = copy.deepcopy(fused)
        self._modules.update(held._modules)
        object.__setattr__(self, "held", held)

    def forward(self, *inputs):
        return self.held.fusegen_reference(*inputs)

    def train(self, mode=True):
        self.held.train(mode)
        return super().train(mode)


def wrong(fused, inputs, **how):
    return [str(each) for each in compare_module(fused, Original(fused), inputs, **how) if not each.ok]


def images(*shape, dtype=torch.float32):
    torch.manual_seed(5)
    return torch.randn(*shape, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("options", LARGEST.values(), ids=LARGEST)
def test_the_largest(modules, options, train) -> None:
    for out in (8, 12, 5):
        assert not wrong(modules("largest", out, **options), [images(2, 3, 9, 8)], train=train)


@pytest.mark.parametrize("options", MEANS.values(), ids=MEANS)
def test_means(modules, options) -> None:
    for out in (8, 12, 5):
        assert not wrong(modules("means", out, **options), [images(2, 3, 9, 8)])


def test_means_in_16_bits(modules) -> None:
    fused = modules("means", 16, kernel_size=3, stride=2, padding=1).bfloat16()
    assert not wrong(fused, [images(2, 3, 9, 8, dtype=torch.bfloat16)])


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("residual", [(2, 3, 9, 8), (2, 8, 9, 8)]),
        ("rows", [(2, 3, 9, 8), (2, 1, 9, 8)]),
        ("groups", [(2, 3, 4, 5, 3)]),
        ("line", [(2, 3, 9)]),
    ],
)
def test_what_stands_in_front(modules, name, shapes) -> None:
    fused = modules(name)
    if name == "rows":
        fused.drop.p = 0.0
    assert not wrong(fused, [images(*shape) for shape in shapes])


def test_windows_that_overlap_in_three_dimensions(modules) -> None:
    options = {"kernel_size": (3, 2, 3), "stride": (2, 1, 1), "padding": (1, 0, 1), "dilation": (1, 3, 1)}
    assert not wrong(modules("groups", **options), [images(2, 3, 5, 6, 4)])


def test_dropped_elements_are_those_of_the_gradient(modules) -> None:
    fused = modules("rows", kernel_size=1)  # each position is a window
    x, gate = images(2, 3, 9, 8), torch.ones(2, 1, 9, 8, requires_grad=True)
    y = fused(x, gate)
    (grad,) = torch.autograd.grad(y.sum(), gate)
    torch.testing.assert_close(grad, y.detach().sum(1, keepdim=True))


@pytest.mark.parametrize("format_", [torch.contiguous_format, torch.channels_last])
def test_ties_and_nan(modules, format_) -> None:
    """Of equal elements the first is taken, and of those that are NaN the last."""
    fused = modules("largest", kernel_size=3, stride=2, padding=1).eval()
    x = torch.randn(2, 3, 9, 8).round().to(memory_format=format_).requires_grad_()
    with torch.no_grad():
        fused.conv.weight.copy_(torch.zeros(8, 3, 3, 3).index_put((torch.arange(3), torch.arange(3),
            torch.tensor(1), torch.tensor(1)), torch.tensor(1.0)))  # fmt: skip
        fused.bn.eps = 0.0
        x[0, 0, 2, 2:4], x[1, 2, 4] = torch.nan, torch.nan
    made, wanted = fused(x), fused.fusegen_reference(x)
    torch.testing.assert_close(made, wanted, equal_nan=True)
    assert made.stride() == wanted.stride()
    weights = torch.randn_like(made)
    for got, expected in zip(*(torch.autograd.grad((y * weights).sum(), x) for y in (made, wanted)), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)


def test_what_kernels_do_not_count(modules) -> None:
    for options in ({"kernel_size": 17, "padding": 8}, {"kernel_size": 2, "return_indices": True}):
        fused = modules("largest", **options)
        fused.fusegen_strict = False
        with pytest.warns(UserWarning, match="windows that kernels do not count"):
            made = fused(images(2, 3, 20, 20))
        wanted = fused.fusegen_reference(images(2, 3, 20, 20))
        for got, expected in zip(
            *(each if isinstance(each, tuple) else (each,) for each in (made, wanted)), strict=True
        ):
            torch.testing.assert_close(got, expected)


def test_a_window_may_see_no_position(modules) -> None:
    """One of dilated elements, beside all of the positions: its largest is minus infinity."""
    fused, x = modules("largest", kernel_size=2, dilation=3, padding=1).eval(), images(2, 3, 2, 9)
    made = fused(x)
    assert made.isneginf().all() and torch.equal(made, fused.fusegen_reference(x))


def test_rows_that_a_thread_counts(modules) -> None:
    """Threads step through windows by 32 bits: the last step, too, ends below 2^31."""
    fused = modules("largest")
    windows_of = part_of_support(type(fused), "windows").windows_of
    assert windows_of(fused.pool, (2**28, 1, 2, 2)) and windows_of(fused.pool, (2**29 - 1, 1, 2, 2)) is None


def test_what_pytorch_refuses(modules) -> None:
    """More padding than half of a kernel, dilated or not."""
    fused, x = modules("largest", kernel_size=2, dilation=3, padding=2), images(2, 3, 9, 8)
    fused.fusegen_strict = False
    for function in (fused.fusegen_reference, fused):
        with pytest.raises(RuntimeError, match="half of kernel size"):
            function(x)


def test_torch_compile_sees_one_graph(modules) -> None:
    fused, x = modules("largest", kernel_size=3, stride=2, padding=1), images(2, 3, 9, 8)
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), fused(x))
    torch.testing.assert_close(*(torch.autograd.grad(each(x).square().sum(), x)[0] for each in (compiled, fused)))


BROADCAST = WITH_GATE.replace("gate: [n, 1, h, w]", "shift: [1]") + """chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3, padding: 1, bias: false}
  - {op: mul, parameter: scale, shape: [out, 1, 1], init: randn}
  - {op: add, input: shift}
  - {op: avg_pool2d, name: pool, kernel_size: 2}
"""  # fmt: skip


def test_what_broadcasts_in_front_of_windows_is_verified(tmp_path, emulation_cache) -> None:
    """Gradients of such operands are sums over other positions than the result's."""
    suite = suites_of({"broadcast": BROADCAST}, tmp_path, emulation_cache)("broadcast")
    found, failures = compared(suite, [(100, 8, 6, 1)])
    assert found and not failures
