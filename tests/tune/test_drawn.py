"""What stands in for the tensors of a call that is timed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.tune.tail import Tail  # noqa: E402
from fusegen.verify.sizes import typical  # noqa: E402
from tests.emulate.building import module_class, write  # noqa: E402

pytestmark = pytest.mark.torch

SPEC = """
fusegen: 1
name: drawn
about: a target, and a weight that blocks share
dims: {batch: 64, features: 96, head: 24}
arguments: {features: {type: dim}, head: {type: dim}}
inputs: {x: [batch, features], target: [batch]}
dtypes: [float32]
chain:
  - {op: rms_norm, name: norm, width: head}
  - {op: cross_entropy, target: target}
"""


def test_targets_and_shared_weights(tmp_path) -> None:
    plan = write("drawn", SPEC, tmp_path)
    module = module_class(plan, tmp_path)(96, 24)
    tail = Tail(plan, plan.modes[0], typical(plan), {}, module, "cpu")
    drawn = {tensor.name: tail.read(tensor) for tensor in plan.variants[0].forward.inputs}
    assert drawn["target"].dtype == torch.int64 and 0 <= drawn["target"].min() <= drawn["target"].max() < 96
    assert drawn["norm_weight"].shape == (96,)
