"""Further inputs of exported files: which have the rows of the first, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import fusegen
from fusegen.errors import SpecError

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


def test_inputs_that_broadcast(tmp_path: Path) -> None:
    spec = tmp_path / "tail.yaml"
    spec.write_text(SPEC)
    text = fusegen.export(spec)
    assert "torch.randn(64, 32), torch.randn(64, 1), torch.randn(32), torch.rand(64, 1) < 0.5" in text
    views = [name for name in ("x", "row", "channel", "keep") if f"{name} = {name}.reshape(-1, {name}" in text]
    assert views == ["x", "row", "keep"]


def test_leading_dimensions_of_the_spec(tmp_path: Path) -> None:
    """All of them, or none: what has some is refused."""
    spec = tmp_path / "tail.yaml"
    text = SPEC.replace("[batch, ", "[batch, positions, ").replace("64,", "64, positions: 8,")
    spec.write_text(text)
    exported = fusegen.export(spec)
    assert "if x.dim() != 3:" in exported and "torch.randn(64, 8, 32), torch.randn(64, 8, 1)" in exported
    spec.write_text(text.replace("row: [batch, positions, 1]", "row: [positions, 1]"))
    with pytest.raises(SpecError, match="FG510.*an input has all dimensions of rows or none: 'row' has some"):
        fusegen.export(spec)
