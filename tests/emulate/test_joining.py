"""Modules that join the channels of values, or take some, on the emulator: beside the original."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.emulate.suites import compared, suites_of  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

CHAINS = {
    # The way up of a U-Net: a further input of other channels, in front of a norm.
    "way_up": """\
dims: {batch: 4, channels: 8, skipped: 6, height: 4, width: 3, double_height: 8, double_width: 6, both: 14}
arguments: {channels: {type: dim}, both: {type: dim}}
inputs: {x: [batch, channels, height, width], skip: [batch, skipped, double_height, double_width]}
chain:
  - {op: relu}
  - {op: upsample, name: up, scale_factor: 2}
  - {op: cat, values: [skip], channels: both}
  - {op: group_norm, name: norm, num_groups: 2}
  - {op: silu}
  - {op: conv2d, name: conv, out_channels: channels, kernel_size: 3, padding: 1}
  - {op: relu}
""",
    # Branches of one value, which come together at the end.
    "branches": """\
dims: {batch: 4, channels: 8, squeezed: 4, left: 6, right: 10, height: 6, width: 5}
arguments: {channels: {type: dim}, squeezed: {type: dim}, left: {type: dim}, right: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
  - {op: conv2d, name: squeeze, out_channels: squeezed, kernel_size: 1}
  - {op: relu, save: s}
  - {op: conv2d, name: one, out_channels: left, kernel_size: 1}
  - {op: relu, save: a}
  - {op: conv2d, name: three, from: s, out_channels: right, kernel_size: 3, padding: 1}
  - {op: relu, save: b}
  - {op: cat, from: a, values: [b, s]}
""",
    # Some of the channels, each part by a way of its own.
    "parted": """\
dims: {batch: 4, features: 8, hidden: 24, left: 10, right: 14}
arguments: {features: {type: dim}, hidden: {type: dim}, left: {type: dim}, right: {type: dim}}
inputs: {x: [batch, features]}
chain:
  - {op: linear, name: fc, out_features: hidden}
  - {op: layer_norm, name: norm, save: y}
  - {op: narrow, start: left, length: right}
  - {op: gelu}
  - {op: linear, name: down, out_features: left}
  - {op: sigmoid, save: gate}
  - {op: narrow, from: y, start: 0, length: left}
  - {op: mul, value: gate}
""",
    "rows": """\
dims: {batch: 4, features: 8, hidden: 6, more: 5, joined: 19, classes: 7}
arguments: {features: {type: dim}, hidden: {type: dim}, joined: {type: dim}, classes: {type: dim}}
inputs: {x: [batch, features], z: [batch, more]}
chain:
  - {op: linear, name: fc, out_features: hidden}
  - {op: gelu}
  - {op: cat, values: [z, x], channels: joined}
  - {op: layer_norm, name: norm}
  - {op: linear, name: head, out_features: classes}
  - {op: tanh}
""",
}


@pytest.fixture(scope="module")
def suites(tmp_path_factory, emulation_cache):
    return suites_of(CHAINS, tmp_path_factory.mktemp("joining"), emulation_cache)


@pytest.mark.parametrize("name", CHAINS)
def test_the_whole_beside_the_original(suites, name) -> None:
    report = suites(name).report()
    wrong = [f"{each.check} {each.shape} {each.mode} {each.item.name}: {each.item.note}" for each in report.failed]
    assert not wrong and len(report.findings) > 50
    assert {"numerics", "strides", "torch.compile", "training"} <= {f.check for f in report.findings}


def test_results_and_gradients_of_other_sizes(suites) -> None:
    found, wrong = compared(suites("rows"), ((33, 70, 96, 6), (1, 24, 32, 4), (31, 37, 41, 1)))
    assert not wrong and len(found) >= 3 * 2 * 2
