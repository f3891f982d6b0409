"""What launchers say that they would run is what they run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.explain.build import build
from fusegen.explain.choices import Question, size_of
from fusegen.explain.text import answer
from fusegen.plan.load import plan_document, plan_file
from fusegen.spec.yaml import parse_yaml

ROOT = Path(__file__).resolve().parents[2]
BATCH, GROUP = (ROOT / "specs" / f"{name}.yaml" for name in ("matmul_bn_bias_div_swish", "gemm_groupnorm_hardtanh"))
CONVOLUTION = ROOT / "specs" / "conv2d_batchnorm_scaling.yaml"

SQUARE = """\
fusegen: 1
name: square
dims: {size: 32}
inputs: {x: [size, size]}
dtypes: [float32]
chain:
  - {op: relu}
"""


def test_columns_that_fit_shared_memory_stay_there(emulation_cache: Path) -> None:
    text = answer(plan_file(BATCH), Question(rows=1024, dtype="bf16"), emulation_cache)
    assert text.splitlines()[0] == "matmul_bn_bias_div_swish, bfloat16, 1024x8192x8192 on H100"
    assert "train_forward: column" in text and "takes column: tiles of columns fit shared memory" in text
    assert "not   two_pass: estimated slower" in text
    assert "eval_forward: pointwise" in text and "scalar_reduction kernel, pass 2" in text


def test_columns_too_long_for_shared_memory_are_read_twice(emulation_cache: Path) -> None:
    text = answer(plan_file(BATCH), Question(rows=10_000_000), emulation_cache)
    assert "train_forward: two_pass" in text and "not   column: no tile of columns fits shared memory" in text
    assert "not   l2: rows do not fill cache lines" in text


def test_rows_too_long_for_registers_are_read_twice(emulation_cache: Path) -> None:
    text = answer(plan_file(GROUP), Question(rows=100, channels=65536, groups=1), emulation_cache)
    assert "not   row: a group of 65536 elements does not fit registers" in text
    assert "row_reduction kernel, pass 0: grid 100x1x4" in text and "clusters of 4" in text


def test_rows_that_fit_registers_stay_there(emulation_cache: Path) -> None:
    text = answer(plan_file(GROUP), Question(rows=64, channels=4096, groups=4), emulation_cache)
    assert "takes row: a group of 1024 elements fits registers" in text
    assert "row kernel, passes 0 to 1" in text and "final_reduction kernel, pass 1" in text


def test_contiguous_tensors_behind_a_convolution(emulation_cache: Path) -> None:
    """A pass over the convolution's result alone is as in channels_last."""
    text = answer(plan_file(CONVOLUTION), Question(rows=125 * 125), emulation_cache)
    forward, backward = text.split("train_backward")[0], text.split("train_backward")[1].split("eval_forward")[0]
    assert "    contiguous: pointwise kernel, pass 0:" in forward and "    contiguous: tile kernel, pass 1:" in forward
    assert "    contiguous: tile kernel, pass 0: grid 2x125x1, block 8x32x1, 16384 bytes shared\n" in backward


def test_sizes_and_dtypes_that_the_spec_lacks_are_refused() -> None:
    with pytest.raises(SpecError, match="no dtype 'float8'"):
        answer(plan_file(GROUP), Question(dtype="float8"))
    # Seven groups do not divide the channels, and no norm of the other has groups.
    with pytest.raises(SpecError, match="gemm_groupnorm_hardtanh cannot have 7 groups"):
        answer(plan_file(GROUP), Question(groups=7))
    with pytest.raises(SpecError, match="matmul_bn_bias_div_swish cannot have 1 groups"):
        answer(plan_file(BATCH), Question(groups=1))


def test_sizes_that_the_spec_ties_together_are_one() -> None:
    square = plan_document(parse_yaml(SQUARE, "square.yaml"))
    for question in (Question(rows=64), Question(rows=64, channels=32)):
        with pytest.raises(SpecError, match="square cannot have 64 rows"):
            answer(square, question)
    assert size_of(square, Question(channels=64)).symbols == {"size": 64}


def test_what_was_measured_on_one_gpu_is_not_taken_on_another(tmp_path: Path, emulation_cache: Path) -> None:
    spec = tmp_path / BATCH.name
    spec.write_text(BATCH.read_text(encoding="utf-8").replace("[sm_90]", "[sm_80, sm_90]"), encoding="utf-8")
    size = {"dtype": "float32", "rows": 1024, "channels": 8192}
    line = {**size, "schedule": "two_pass", "microseconds": 1.0, "default_microseconds": 2.0}
    programs = {"programs": {"train_forward": [line]}}
    gpu = {"gpu": "NVIDIA H100", "torch": "2.11.0", "cuda": "13.0", **programs}
    tuning = {"fusegen_tuning": 1, "architectures": {"sm_90": gpu}}
    spec.with_suffix(".tuning.json").write_text(json.dumps(tuning), encoding="utf-8")
    report = build(plan_file(spec), Question(rows=1024), emulation_cache, target="sm_80")
    assert report.device.name == "A100" and "sm_90" in report.tuning[0].measured_on
    assert report.variants[0].programs[0].taken != "two_pass"
