"""Modules with pooling between their regions, on the emulator: beside the original, in both memory formats."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.plan.load import planned_file  # noqa: E402
from tests.emulate.suites import emulated_suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

# Between two regions, and at the end.
POOLED = """\
fusegen: 1
name: pooled
dims: {batch: 8, channels: 3, out: 8, height: 12, width: 10}
arguments: {channels: {type: dim}, out: {type: dim}, kernel: {type: int, typical: 3}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3, padding: 1, bias: false}
  - {op: batch_norm, name: bn}
  - {op: relu}
  - {op: max_pool2d, name: pool, kernel_size: kernel, stride: 2, padding: 1, ceil_mode: true}
  - {op: mul, parameter: scale, shape: [out, 1, 1], init: randn}
  - {op: silu}
  - {op: avg_pool2d, name: last, kernel_size: 2, stride: 1, count_include_pad: false}
"""
# The pooled value meets the image again: a region that begins with the image takes it with positions of 1.
GATED = """\
fusegen: 1
name: gated
dims: {batch: 4, channels: 16, reduced: 8, height: 9, width: 7}
arguments: {channels: {type: dim}, reduced: {type: dim}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
  - {op: silu, save: y}
  - {op: adaptive_avg_pool2d, name: pool, output_size: 1}
  - {op: conv2d, name: fc1, out_channels: reduced, kernel_size: 1}
  - {op: relu}
  - {op: conv2d, name: fc2, out_channels: channels, kernel_size: 1}
  - {op: sigmoid}
  - {op: mul, value: y}
"""
# The value in front is a result, too: the pooling has kernels of its own.
SKIPPED = """\
fusegen: 1
name: skipped
dims: {batch: 2, channels: 3, out: 8, height: 9, width: 6}
arguments: {channels: {type: dim}, out: {type: dim}}
inputs: {x: [batch, channels, height, width]}
outputs: [skip, result]
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3, padding: 1}
  - {op: silu, save: skip}
  - {op: max_pool2d, name: pool, kernel_size: 2}
"""


@pytest.fixture(scope="module")
def suites(tmp_path_factory, emulation_cache):
    root, found = tmp_path_factory.mktemp("pooling"), {}

    def suite(text: str):
        if text not in found:
            name = text.splitlines()[1].removeprefix("name: ")
            (root / f"{name}.yaml").write_text(text)
            found[text] = emulated_suite(planned_file(root / f"{name}.yaml"), root / "made", emulation_cache)
        return found[text]

    return suite


@pytest.mark.parametrize("text", [POOLED, GATED, SKIPPED], ids=["pooled", "gated", "skipped"])
def test_the_whole_beside_the_original(suites, text) -> None:
    report = suites(text).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and len(report.findings) > 50
    assert {"numerics", "strides", "memory formats", "torch.compile", "training"} <= {f.check for f in report.findings}


@pytest.mark.parametrize("format_", [torch.contiguous_format, torch.channels_last])
def test_results_have_the_originals_format(suites, format_) -> None:
    package = suites(POOLED).subject.package
    module = package.Pooled(3, 8, 2).eval().to(memory_format=format_)
    x = torch.randn(2, 3, 9, 8).to(memory_format=format_)
    made, wanted = module(x), module.fusegen_reference(x)
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)
    assert made.stride() == wanted.stride()


def test_a_layer_may_get_other_options(suites) -> None:
    module, x = suites(POOLED).subject.package.Pooled(3, 8, 2).eval(), torch.randn(2, 3, 9, 8)
    module.pool.kernel_size, module.pool.stride = 3, 3
    torch.testing.assert_close(module(x), module.fusegen_reference(x), rtol=1e-4, atol=1e-5)
