"""Values of other widths than the rest: of one channel, a loss behind layers, parts of what a layer has made."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.plan.load import planned_file  # noqa: E402
from tests.emulate.suites import compared, emulated_suite  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

SHAPES = ((5, 6, 12, 3), (1, 8, 12, 2))
HEAD = """\
fusegen: 1
name: {name}
dims: {{batch: 16, features: 24, hidden: 36}}
arguments: {{features: {{type: dim}}, hidden: {{type: dim}}}}
inputs: {{x: [batch, features]{inputs}}}
dtypes: [{dtype}]
chain:
"""
SPECS = {
    # A loss behind a norm and a layer: its target is an input of one region alone.
    "rows_loss": (
        "bfloat16",
        ", target: [batch]",
        """\
  - {op: rms_norm, name: norm}
  - {op: linear, name: head, out_features: hidden, bias: false}
  - {op: cross_entropy, target: target, ignore_index: 1}
""",
    ),
    # `total` is stored beside a value of all elements; later regions take it, and the module returns it.
    # The mean is a row of one element to the dropout, and meets `x`, which has another width.
    "rows_between": (
        "float32",
        "",
        """\
  - {op: tanh, save: t}
  - {op: sum, keepdim: true, save: total}
  - {op: mul, value: t}
  - {op: linear, name: up, out_features: hidden}
  - {op: mul, value: total}
  - {op: mean, keepdim: true}
  - {op: dropout, name: drop, p: 0.25}
  - {op: sub, input: x}
outputs: [result, total]
""",
    ),
    # In evaluation the two results are one value: its gradients are added.
    "rows_beside": (
        "float32",
        "",
        """\
  - {op: linear, name: fc, out_features: hidden, save: logits}
  - {op: logsumexp, keepdim: true, save: total}
  - {op: sub, value: logits, swap: true, save: kept}
  - {op: dropout, name: drop, p: 0.25}
outputs: [result, total, kept]
""",
    ),
    # Both parts of what is made of the product are computed where they are taken: one region.
    "parts_behind": (
        "bfloat16",
        "",
        """\
  - {op: linear, name: fc, out_features: 2 * hidden}
  - {op: gelu}
  - {op: mul, constant: 1.5}
  - {op: glu}
  - {op: rms_norm, name: norm}
""",
    ),
    # The sum of two layers is stored, and a region begins with its parts.
    "parts_of_sum": (
        "float32",
        ", h: [batch, features]",
        """\
  - {op: linear, name: ih, out_features: 2 * hidden, save: a}
  - {op: linear, from: h, name: hh, out_features: 2 * hidden}
  - {op: add, value: a}
  - {op: add, parameter: p, shape: [2 * hidden], init: randn}
  - {op: chunk, parts: [i, f], running: f}
  - {op: sigmoid}
  - {op: mul, value: i}
""",
    ),
}
REGIONS = {"rows_loss": 2, "rows_between": 4, "rows_beside": 1, "parts_behind": 1, "parts_of_sum": 3}


@pytest.mark.parametrize("name", SPECS)
def test_beside_the_chain_in_pytorch(name: str, tmp_path: Path, emulation_cache: Path) -> None:
    """Results and every gradient, in training and evaluation."""
    dtype, inputs, chain = SPECS[name]
    path = tmp_path / f"{name}.yaml"
    path.write_text(HEAD.format(name=name, dtype=dtype, inputs=inputs) + chain, encoding="utf-8")
    plan = planned_file(path)
    assert len(plan.regions) == REGIONS[name]
    found, wrong = compared(emulated_suite(plan, tmp_path, emulation_cache), SHAPES)
    assert not wrong and len(found) >= 2 * 2 * 2
