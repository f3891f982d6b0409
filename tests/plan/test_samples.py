"""Which gradients are sums of samples, and what a plan has for them."""

from __future__ import annotations

import pytest

from fusegen.plan.load import plan_document
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.samples import summed_inputs
from fusegen.plan.sizes.bytes import samples_of
from fusegen.spec.yaml import parse_yaml

_ROWS = """
fusegen: 1
name: demo
dims: {batch: 4, heads: 3, positions: 16, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [batch, heads, positions, features], INPUTS}
dtypes: [float32]
chain:
  - {op: layer_norm, name: norm}
"""
_IMAGES = """
fusegen: 1
name: demo
dims: {batch: 4, channels: 8, height: 6, width: 5, hidden: 16}
arguments: {channels: {type: dim}, hidden: {type: dim}}
inputs: {x: [batch, channels, height, width], INPUTS}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv, out_channels: hidden, kernel_size: 1}
  - {op: batch_norm, name: bn}
"""


def planned(head: str, **inputs: str) -> Plan:
    text = head.replace("INPUTS", ", ".join(f"{name}: [{shape}]" for name, shape in inputs.items()))
    text += "".join(f"  - {{op: mul, input: {name}}}\n" for name in inputs)
    return plan_document(parse_yaml(text, "demo.yaml"))


@pytest.mark.parametrize(
    ("head", "inputs", "summed"),
    [
        (_ROWS, {"a": "batch, 1, 1, features", "b": "batch, features"}, ["a", "b"]),
        (_ROWS, {"a": "batch, heads, 1, features", "b": "batch, 1, 1, features"}, ["a"]),  # other samples
        (_ROWS, {"a": "positions, features", "b": "heads, 1, features"}, []),  # again and again, and neither
        (_ROWS, {"a": "batch, 1, 1, 1", "b": "features", "c": "batch, heads, positions, features"}, []),
        (_IMAGES, {"a": "batch, hidden, 1, 1", "b": "batch, hidden, height, 1"}, ["a"]),
        (_IMAGES, {"b": "batch, hidden, height, 1"}, []),
    ],
    ids=str,
)
def test_which_are_summed(head, inputs, summed) -> None:
    plan = planned(head, **inputs)
    assert summed_inputs(plan.chain) == summed
    for variant in plan.variants:
        assert list(variant.backward.samples) == summed
        assert not variant.forward.samples


def test_how_many_samples_there_are() -> None:
    plan = planned(_ROWS, a="batch, heads, 1, features", b="batch, 1, 1, features")
    (variant,) = plan.variants
    assert samples_of(plan, variant.backward, plan.spec.dims) == 12 and not samples_of(plan, variant.forward, {})


def test_no_schedule_has_all_rows_of_a_tile() -> None:
    """Batch norm's sums, behind which sums of samples are taken."""
    train = planned(_IMAGES, a="batch, hidden, 1, 1").variants[0].backward
    assert [schedule.kind for schedule in train.schedules] == ["two_pass"] and train.first_resident == 1
    kinds = [kernel.kind for kernel in train.schedules[0].kernels]
    assert kinds == ["pointwise", "final_reduction", "pointwise", "sample_reduction", "final_reduction"]
    without = planned(_IMAGES, a="hidden, 1, 1").variants[0].backward
    assert "column" in [schedule.kind for schedule in without.schedules]
