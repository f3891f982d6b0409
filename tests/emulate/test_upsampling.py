"""Modules with upsampling between their regions, on the emulator: beside the original, in both memory formats."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.emulate.suites import compared, suites_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

CHAINS = {
    # A decoder: between a norm and a convolution, and what ends in more positions and fewer channels.
    "decoder": """\
dims: {batch: 4, channels: 8, out: 16, height: 6, width: 5}
arguments: {channels: {type: dim}, out: {type: dim}, factor: {type: int, typical: 2}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: group_norm, name: norm, num_groups: 4}
  - {op: silu}
  - {op: upsample, name: up, scale_factor: factor}
  - {op: conv2d, name: conv, out_channels: out, kernel_size: 3, padding: 1}
  - {op: relu}
  - {op: pixel_shuffle, name: shuffle, upscale_factor: 2}
  - {op: tanh}
""",
    # What is upsampled meets an input of its size; relu's gradient spreads over what is made of it.
    "merged": """\
dims: {batch: 4, channels: 6, height: 4, width: 3, double_height: 8, double_width: 6}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels, height, width], skip: [batch, channels, double_height, double_width]}
chain:
  - {op: relu}
  - {op: upsample, name: up, scale_factor: [2, 2], mode: bilinear, align_corners: true}
  - {op: add, input: skip}
  - {op: batch_norm, name: bn}
  - {op: relu}
""",
    "of_one_dimension": """\
dims: {batch: 4, channels: 6, length: 9}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels, length]}
chain:
  - {op: batch_norm, name: bn}
  - {op: upsample, name: up, scale_factor: 1.5, mode: linear}
  - {op: gelu}
""",
    "of_three": """\
dims: {batch: 2, channels: 4, depth: 3, height: 4, width: 5}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels, depth, height, width]}
chain:
  - {op: group_norm, name: norm, num_groups: 2}
  - {op: upsample, name: up, size: [4, 6, 7], mode: trilinear}
  - {op: tanh}
""",
    "unshuffled": """\
dims: {batch: 4, channels: 3, wide: 12, height: 8, width: 6}
arguments: {channels: {type: dim}, wide: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: relu}
  - {op: pixel_unshuffle, name: down, downscale_factor: 2, channels: wide}
  - {op: batch_norm, name: bn}
  - {op: relu}
""",
}


@pytest.fixture(scope="module")
def suites(tmp_path_factory, emulation_cache):
    return suites_of(CHAINS, tmp_path_factory.mktemp("upsampling"), emulation_cache)


@pytest.mark.parametrize("name", CHAINS)
def test_results_and_gradients(suites, name) -> None:
    found, wrong = compared(suites(name), ((33, 70, 96, 6), (1, 24, 32, 4), (31, 37, 41, 1)))
    assert not wrong and len(found) >= 3 * 2 * 2


@pytest.mark.parametrize("name", ["decoder", "merged"])
def test_the_whole_beside_the_original(suites, name) -> None:
    report = suites(name).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and len(report.findings) > 50
    assert {"numerics", "strides", "memory formats", "torch.compile", "training"} <= {f.check for f in report.findings}
