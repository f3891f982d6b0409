"""Further inputs of exported files: which have the rows of the first, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import fusegen
from tests.chains.collection import ENTRIES

SPEC = """\
fusegen: 1
name: tail
dims: {batch: 64, features: 32}
inputs: {x: [batch, features], row: [batch, 1], channel: [features], keep: [batch, 1]}
dtypes: [float32]
chain:
  - {op: mul, input: row}
  - {op: add, input: channel}
  - {op: mul, mask: keep}
"""
POOLED = """\
fusegen: 1
name: pooled
dims: {batch: 16, in_features: 24, out_features: 32}
arguments: {in_features: {type: dim}, out_features: {type: dim}}
inputs: {x: [batch, in_features], target: [batch]}
dtypes: [float32]
chain:
  - {op: linear, name: fc, out_features: out_features}
  - {op: avg_pool1d, name: pool, kernel_size: 4}
  - {op: gelu}
  - {op: cross_entropy, target: target}
"""


def test_inputs_that_broadcast(tmp_path: Path) -> None:
    spec = tmp_path / "tail.yaml"
    spec.write_text(SPEC)
    text = fusegen.export(spec)
    assert "torch.randn(64, 32), torch.randn(64, 1), torch.randn(32), torch.rand(64, 1) < 0.5" in text


def test_leading_dimensions_of_the_spec(tmp_path: Path) -> None:
    """Of inputs that have all of them, and of one that has some."""
    spec = tmp_path / "tail.yaml"
    text = SPEC.replace("[batch, ", "[batch, positions, ").replace("64,", "64, positions: 8,")
    spec.write_text(text)
    exported = fusegen.export(spec)
    assert "torch.randn(64, 8, 32), torch.randn(64, 8, 1)" in exported
    spec.write_text(text.replace("row: [batch, positions, 1]", "row: [positions, 1]"))
    assert "torch.randn(64, 8, 32), torch.randn(8, 1)" in fusegen.export(spec)


def test_targets_are_channels(tmp_path: Path) -> None:
    spec = tmp_path / "token_loss.yaml"
    spec.write_text(ENTRIES["token_loss"].text(["float32"]))
    names: dict = {}
    exec("import torch\n" + fusegen.export(spec).partition("# ---- Inputs")[2].partition("\n")[2], names)
    _, target = names["get_inputs"]()
    sizes = ENTRIES["token_loss"].spec["dims"]
    assert target.shape == (sizes["tokens"],) and not target.is_floating_point()
    assert 0 <= target.min() <= target.max() < sizes["vocabulary"]


def test_targets_behind_a_layer_that_makes_other_channels(tmp_path: Path) -> None:
    """Pooling makes eight of 32, a number for which the spec has no symbol."""
    spec = tmp_path / "pooled.yaml"
    spec.write_text(POOLED)
    assert "torch.randn(16, 24), torch.randint(8, (16,))" in fusegen.export(spec)
