"""What stands in for the tensors of a call that is timed, and for its sizes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.plan.sizes.chain_sizes import typical  # noqa: E402
from fusegen.tune.tail import Tail, TailProgram  # noqa: E402
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
SAMPLES = """
fusegen: 1
name: samples
dims: {batch: 6, positions: 10, features: 24}
inputs: {x: [batch, positions, features], shift: [batch, 1, features]}
dtypes: [float32]
chain:
  - {op: add, input: shift}
  - {op: silu}
"""


def test_targets_and_shared_weights(tmp_path) -> None:
    plan = write("drawn", SPEC, tmp_path)
    module = module_class(plan, tmp_path)(96, 24)
    tail = Tail(plan, plan.modes[0], typical(plan), {}, module, "cpu")
    drawn = {tensor.name: tail.read(tensor) for tensor in plan.variants[0].forward.inputs}
    assert drawn["target"].dtype == torch.int64 and 0 <= drawn["target"].min() <= drawn["target"].max() < 96
    assert drawn["norm_weight"].shape == (96,)


def test_as_many_samples_as_the_sizes_have(tmp_path) -> None:
    """Their number decides how many blocks there are, so one of another has other times."""
    plan = write("samples", SAMPLES, tmp_path)
    tail = Tail(plan, plan.modes[0], typical(plan), {}, module_class(plan, tmp_path)(), "cpu")
    backward = TailProgram(tail, plan.variants[0].backward)
    assert backward.call().samples == 6
    assert backward.outputs["grad_shift"].shape == (6, 24)
    assert TailProgram(tail, plan.variants[0].forward).call().samples == 0
