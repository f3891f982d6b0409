"""A mask of all elements in front of a batch norm: each schedule reads it as it reads the rest, in vectors of bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from tests.emulate.building import kernels_of, write  # noqa: E402
from tests.emulate.test_chains import agreement, schedules_of  # noqa: E402

pytestmark = pytest.mark.torch

SPEC = """
fusegen: 1
name: masked_columns
dims: {batch: 64, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [batch, features], hidden: [batch, features]}
dtypes: [float32, bfloat16]
chain:
  - {op: masked_fill, mask: hidden, constant: 0.5}
  - {op: batch_norm, name: bn, affine: false, track_running_stats: false}
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_schedule(dtype: str, tmp_path: Path, emulation_cache: Path) -> None:
    plan = write("masked_columns", SPEC, tmp_path)
    mode = next(mode for mode in plan.modes if mode.plain and mode.roles["activation"] == dtype)
    library = kernels_of(tmp_path / "masked_columns", mode, emulation_cache)
    module, variant = fusegen.load("masked_columns", tmp_path)(16), plan.variants[0]
    assert "l2" in schedules_of(variant)
    torch.manual_seed(2)
    tensors = {name: torch.randn(70, 16).to(getattr(torch, dtype)) for name in ("x", variant.result_gradient)}
    tensors["hidden"] = torch.rand(70, 16) < 0.4
    expected = tail_reference(plan, module, tensors, mode, True)
    tail = EmulatedTail(plan, variant, library, module)
    assert all(agreement(tail, tensors, mode, each, 1, expected) for each in schedules_of(variant))
