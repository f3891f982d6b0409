"""Values of a group that follow from a reduction of its whole row: results and gradients beside double precision."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.plan.load import plan_document  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.spec.yaml import parse_yaml  # noqa: E402
from tests.emulate.suites import compared, emulated_suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SPEC = """\
fusegen: 1
name: {name}
dims: {{batch: 64, width: 32}}
arguments: {{width: {{type: dim}}}}
inputs: {{x: [batch, width]}}
dtypes: [float32]
chain:
"""
CHAINS = {
    # A pass over rows comes first, and what follows from that over groups needs both.
    "std_of_row": (
        *("op: tanh, save: v", "op: std, keepdim: true", "op: add, value: v"),
        "op: group_norm, name: norm, num_groups: 2",
    ),
    "largest_of_row": (
        *("op: tanh, save: v", "op: max, dim: 1, keepdim: true", "op: add, value: v"),
        "op: layer_norm, name: norm, width: 2",
    ),
    # The row waits for the groups, and the groups for the row.
    "groups_around_a_row": (
        *("op: tanh, save: v", "op: group_norm, name: first, num_groups: 2, affine: false"),
        *("op: mean, dim: 1, keepdim: true", "op: add, value: v", "op: group_norm, name: norm, num_groups: 2"),
    ),
    "row_after_row": (
        *("op: tanh, save: v", "op: softmax, dim: 1", "op: std, keepdim: true", "op: add, value: v"),
        "op: group_norm, name: norm, num_groups: 2",
    ),
}
SHAPES = ((7, 12, 12, 2), (1, 4, 4, 2), (3, 264, 264, 2))


@pytest.mark.parametrize("name", CHAINS)
def test_kernels(name: str, tmp_path: Path, emulation_cache: Path) -> None:
    text = SPEC.format(name=name) + "".join(f"  - {{{step}}}\n" for step in CHAINS[name])
    plan = plan_document(parse_yaml(text, "spec.yaml"))
    found, wrong = compared(emulated_suite(module_of(plan), tmp_path, emulation_cache), SHAPES)
    assert found and not wrong
