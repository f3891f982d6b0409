"""Modules of several convolutions on the emulator: beside the original, in both memory formats, and what they copy."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

HEAD = """\
fusegen: 1
name: %s
dims: {batch: 8, channels: 16, height: 12, width: 10, out: 32}
arguments: {channels: {type: dim}, out: {type: dim}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
"""
# Both branches halve the positions. All that the last region's tiles read is contiguous where its result is.
DOWN = """\
  - {op: conv2d, name: conv1, out_channels: out, kernel_size: 3, stride: 2, padding: 1, bias: false}
  - {op: batch_norm, name: bn1}
  - {op: relu}
  - {op: conv2d, name: conv2, out_channels: out, kernel_size: 3, padding: 1}
  - {op: batch_norm, name: bn2, save: main}
  - {op: conv2d, from: x, name: down, out_channels: out, kernel_size: 1, stride: 2, bias: false}
  - {op: batch_norm, name: bn3}
  - {op: add, value: main}
  - {op: relu}
"""
# A region of two results, of which one is taken at once, a layer that PyTorch calls, a layer over the channels, and
# results of two sizes.
SEVERAL = """\
  - {op: conv2d, name: conv1, out_channels: out, kernel_size: 3, padding: 1}
  - {op: batch_norm, name: bn, save: before}
  - {op: silu}
  - {op: conv2d, name: plain, out_channels: out, kernel_size: 1, bias: false}
  - {op: linear, name: over, out_features: out}
  - {op: mul, parameter: scale, shape: [out], init: randn}
  - {op: add, value: before, save: total}
  - {op: conv2d, name: conv2, out_channels: channels, kernel_size: 2, stride: 2}
  - {op: tanh}
outputs: [result, total]
"""
# PyTorch's softmax is contiguous, and so is what a convolution makes of it.
KEPT = """\
  - {op: conv2d, name: conv1, out_channels: out, kernel_size: 3, padding: 1}
  - {op: softmax, dim: 1}
  - {op: conv2d, name: conv2, out_channels: channels, kernel_size: 1}
  - {op: relu}
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory, emulation_cache):
    """By name: the subject of a chain, made once."""
    root, found = tmp_path_factory.mktemp("images"), {}

    def package(name: str) -> Subject:
        if name not in found:
            text = {"images_down": DOWN, "images_several": SEVERAL, "images_kept": KEPT}[name]
            (root / f"{name}.yaml").write_text(HEAD % name + text)
            plan = planned_file(root / f"{name}.yaml")
            write_files(render_all([plan]), root)
            found[name] = Subject(plan, emulate_package(root / name, cache=emulation_cache, checked=False), "cpu")
        return found[name]

    return package


NAMES = ["images_down", "images_several"]
FORMATS = [torch.contiguous_format, torch.channels_last]


def made(subject: Subject, channels: int = 5, out: int = 6):
    torch.manual_seed(2)
    module = getattr(subject.package, subject.plan.spec.class_name)(channels, out)
    module.fusegen_strict = True
    return module


def results(found) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_beside_the_original(packages, name) -> None:
    report = Suite(packages(name), full=False).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and len(report.findings) > 100
    assert {"numerics", "strides", "memory formats", "torch.compile", "training"} <= {f.check for f in report.findings}


@pytest.mark.parametrize("weights", FORMATS, ids=["contiguous weights", "weights in channels_last"])
@pytest.mark.parametrize("inputs", FORMATS, ids=["contiguous x", "x in channels_last"])
@pytest.mark.parametrize("name", NAMES)
def test_strides_of_results_are_the_originals(packages, name, inputs, weights) -> None:
    module = made(packages(name)).to(memory_format=weights)
    x = torch.randn(2, 5, 6, 7).to(memory_format=inputs)
    mine, theirs = results(module.eval()(x)), results(module.fusegen_reference(x))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert a.stride() == b.stride()


class Copies(TorchDispatchMode):
    """Notes the sizes of tensors that are copied."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            self.sizes.append(args[0].numel())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("format_", FORMATS, ids=["contiguous", "channels_last"])
def test_between_regions_nothing_is_copied(packages, format_) -> None:
    """A contiguous x is copied once for the two convolutions that take it, and nothing else is."""
    module = made(packages("images_down")).to(memory_format=format_)
    x = torch.randn(2, 5, 12, 14).to(memory_format=format_).requires_grad_()
    with Copies() as forward:
        y = module(x)
    with Copies() as backward:
        torch.autograd.grad(y, [x, *module.parameters()], torch.ones_like(y))
    between = 2 * 6 * 6 * 7
    assert between not in forward.sizes and between not in backward.sizes
    assert forward.sizes.count(x.numel()) == (1 if format_ is torch.contiguous_format else 0)
    assert y.is_contiguous(memory_format=format_)


@pytest.mark.parametrize("name", NAMES)
def test_what_would_run_is_told_without_computing(packages, name) -> None:
    module = made(packages(name))
    before = copy.deepcopy(module.state_dict())
    assert module.train().fusegen_kernels(torch.randn(2, 5, 6, 7))
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    with pytest.raises(ValueError, match="conv2d takes no others"):
        module.fusegen_kernels(torch.randn(5, 6))


def test_a_region_with_hooks_runs_in_pytorch_and_the_others_do_not(packages) -> None:
    """Its result is brought to the format that others take."""
    module = made(packages("images_down")).eval()
    x = torch.randn(2, 5, 6, 7)
    expected = module(x)
    module.bn2.register_forward_hook(lambda *_: None)
    module.fusegen_strict = False
    with pytest.warns(UserWarning, match="images_down_conv2: PyTorch's own operators run.*bn2 has hooks"):
        found = module(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found.stride() == expected.stride()


def test_layers_as_they_are_now(packages) -> None:
    """A stride that a user sets later counts; where regions then do not meet, PyTorch refuses the sum."""
    module = made(packages("images_down")).eval()
    module.conv1.stride = module.down.stride = (1, 3)
    x = torch.randn(2, 5, 6, 7)
    assert module(x).shape == (2, 6, 6, 3)
    torch.testing.assert_close(module(x), module.fusegen_reference(x), rtol=1e-4, atol=1e-5)
    module.down.stride, module.fusegen_strict = (1, 1), False
    with pytest.raises(RuntimeError, match="must match"):
        module(x)


@pytest.mark.filterwarnings("ignore:.*no dimension for the batch")
def test_without_a_batch(packages) -> None:
    module = made(packages("images_down"))
    module.fusegen_strict = False
    with pytest.raises(ValueError, match="expected 4D input"):  # of batch_norm
        module.train()(torch.randn(5, 6, 7))


NORM_FIRST = """
fusegen: 1
name: norm_first
dims: {n: 4, channels: 8, h: 6, w: 5}
arguments: {channels: {type: dim}}
inputs: {x: [n, channels, h, w]}
dtypes: [float32]
chain:
  - {op: batch_norm, name: bn}
  - {op: relu}
  - {op: conv2d, name: conv, out_channels: channels, kernel_size: 3, padding: 1}
"""


def test_a_first_region_that_begins_with_an_input(emulation_cache, tmp_path) -> None:
    (tmp_path / "norm_first.yaml").write_text(NORM_FIRST)
    write_files(render_all([planned_file(tmp_path / "norm_first.yaml")]), tmp_path / "made")
    package = emulate_package(tmp_path / "made" / "norm_first", cache=emulation_cache, checked=False)
    module, x = package.NormFirst(4), torch.randn(3, 4, 6, 5)
    assert module.fusegen_kernels(x)
    torch.testing.assert_close(module(x), module.fusegen_reference(x))


def test_a_softmax_keeps_the_format_of_its_input(packages) -> None:
    suite = Suite(packages("images_kept"), full=False)
    found = list(suite.leading())
    assert found and {each.check for each in found} == {"memory formats"}
    assert not [each.item for each in found if not each.item.ok]
