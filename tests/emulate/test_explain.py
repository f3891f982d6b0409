"""What launchers say that they would run is what they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.explain.choices import Question
from fusegen.explain.text import answer
from fusegen.plan.load import plan_file

ROOT = Path(__file__).resolve().parents[2]
BATCH, GROUP = (ROOT / "specs" / f"{name}.yaml" for name in ("matmul_bn_bias_div_swish", "gemm_groupnorm_hardtanh"))


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


def test_sizes_and_dtypes_that_the_spec_lacks_are_refused() -> None:
    with pytest.raises(SpecError, match="no dtype 'float8'"):
        answer(plan_file(GROUP), Question(dtype="float8"))
