"""Modules with regions whose kernels see contiguous images as rows of their last dimensions, on the emulator."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fusegen.plan.sizes.module_sizes import module_typical  # noqa: E402
from fusegen.verify.checks.execution import compiled  # noqa: E402
from tests.emulate.suites import compared, suites_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

CHAINS = {
    "width": """\
dims: {batch: 4, inside: 3, out: 8, depth: 2, height: 3, width: 4}
arguments: {inside: {type: dim}, out: {type: dim}}
inputs: {x: [batch, inside, depth, height, width]}
chain:
  - {op: conv_transpose3d, name: conv, out_channels: out, kernel_size: 4, stride: 2, padding: 1}
  - {op: layer_norm, name: norm, normalized_shape: [out]}
  - {op: gelu}
  - {op: mul, constant: 0.7}
""",
    "between": """\
dims: {batch: 4, channels: 6, height: 7, width: 9}
arguments: {channels: {type: dim}, height: {type: dim}, width: {type: dim}}
inputs: {x: [batch, channels, height, width]}
outputs: [y, result]
chain:
  - {op: conv2d, name: conv, out_channels: channels, kernel_size: 3, padding: 1}
  - {op: rms_norm, name: norm, normalized_shape: [width], eps: 0.001}
  - {op: mul, parameter: scale, shape: [width], init: randn}
  - {op: add, parameter: shift, shape: [1], init: randn, save: y}
  - {op: softmax, dim: 3}
  - {op: mul, value: y}
  - {op: conv2d, name: last, out_channels: channels, kernel_size: 3, padding: 1}
  - {op: layer_norm, name: whole, normalized_shape: [channels, height, width]}
  - {op: add, value: y}
""",
    "dropped": """\
dims: {batch: 4, channels: 6, height: 7, width: 9, out: 5}
arguments: {channels: {type: dim}, out: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: tanh}
  - {op: sum, dim: 3, keepdim: false, save: y}
  - {op: relu}
  - {op: amax, dim: 2, keepdim: false}
  - {op: linear, name: fc, out_features: out}
  - {op: mul, constant: 2.0}
""",
}


@pytest.fixture(scope="module")
def suites(tmp_path_factory, emulation_cache):
    return suites_of(CHAINS, tmp_path_factory.mktemp("rows"), emulation_cache)


@pytest.mark.parametrize("name", CHAINS)
def test_results_and_gradients(suites, name) -> None:
    found, wrong = compared(suites(name), ((33, 70, 96, 6), (1, 24, 32, 4), (31, 37, 41, 1)))
    assert not wrong and len(found) >= 3 * 2 * 2


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in CHAINS])
def test_the_whole_beside_the_original(suites, name) -> None:
    report = suites(name).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and {"strides", "torch.compile", "training"} <= {each.check for each in report.findings}


def test_torch_compile_traces_norms_behind_convolutions(suites) -> None:
    suite = suites("between")
    fused, original, inputs = suite.subject.pair(module_typical(suite.subject.plan), suite.modes()[0], 0)
    found = compiled(fused, original, inputs)
    assert found and all(each.ok for each in found)


class _Moves(TorchDispatchMode):
    """The ops of fusegen, and PyTorch's copies of tensors of one size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.seen = size, list[str]()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        is_copy = func._opname in ("clone", "copy_", "_to_copy") and args[0].numel() == self.size
        if func.namespace == "fusegen" or is_copy:
            self.seen.append(func._opname)
        return func(*args, **(kwargs or {}))


def test_nothing_is_copied_behind_the_convolution(suites) -> None:
    """The convolution's region writes contiguous images, and takes contiguous gradients."""
    suite = suites("width")
    fused, _, inputs = suite.subject.pair(module_typical(suite.subject.plan), suite.modes()[0], 0)
    with torch.no_grad():
        size = fused(*inputs).numel()
    with _Moves(size) as forward:
        result = fused(*inputs)
    grad = torch.ones_like(result)
    with _Moves(size) as backward:
        result.backward(grad)
    of_regions = ["width_conv", "width_norm"]
    for moves, regions in ((forward, of_regions), (backward, of_regions[::-1])):
        assert len(moves.seen) == 2, moves.seen
        assert all(name.startswith(region) for name, region in zip(moves.seen, regions, strict=True))
    assert result.is_contiguous() and inputs[0].grad is not None
