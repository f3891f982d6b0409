"""Sizes of images where not every number of positions will do."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from fusegen.plan.load import planned_file  # noqa: E402
from fusegen.plan.sizes.chain_sizes import LARGE, SMALL  # noqa: E402
from fusegen.plan.sizes.module_sizes import module_sizes  # noqa: E402

SPEC = """\
fusegen: 1
name: demo
dims: {batch: 4, channels: 8, height: %d, width: %d%s}
arguments: {channels: {type: dim}}
inputs: {x: [batch, channels, height, width], skip: [batch, channels, %s]}
chain:
  - {op: conv2d, name: conv1, out_channels: channels, kernel_size: %d, stride: %d}
"""
MORE = """\
  - {op: relu}
  - {op: conv2d, name: conv2, out_channels: channels, kernel_size: 1}
"""
ADD = "  - {op: add, input: skip}\n"


def given(root: Path, text: str) -> set[tuple[int, ...]]:
    path = root / "demo.yaml"
    path.write_text(text)
    plan = planned_file(path)
    found = [module_sizes(plan, *shape) for shape in (*SMALL, *LARGE[:4])]
    assert len({size.symbols["channels"] for size in found}) > 5 and len({size.given[0] for size in found}) > 3
    return {size.given[2:] for size in found}


@pytest.mark.parametrize("more", ["", MORE], ids=["one region", "two regions"])
def test_an_input_with_numbers_of_positions(tmp_path: Path, more: str) -> None:
    """Of all sizes only those of the spec can be added."""
    text = SPEC % (8, 10, "", "4, 5", 2, 2)
    assert given(tmp_path, text + more + ADD) == {(8, 10)}


def test_larger_images_than_are_tried(tmp_path: Path) -> None:
    text = SPEC % (600, 900, ", h2: 2, w2: 3", "h2, w2", 300, 300)
    assert given(tmp_path, text + MORE + ADD) == {(600, 900)}
