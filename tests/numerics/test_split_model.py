"""benchmarks/split_model.py: its committed errors are those of today's model, and what it prints."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COMMITTED = BENCHMARKS / "results" / "split_model.csv"


@functools.cache
def script() -> ModuleType:
    # By path: benchmarks/ is no package.
    spec = importlib.util.spec_from_file_location("split_model", BENCHMARKS / "split_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("depth", [64, 256, 1024])
@pytest.mark.parametrize("data", ["normal", "uniform", "positive", "student t, 3", "Cauchy"])
def test_committed_errors(data: str, depth: int) -> None:
    committed = [row for row in script().read(COMMITTED) if (row.data, row.depth) == (data, depth)]
    found = list(script().measure(data, depth, script().SIDE))
    assert [row.method for row in found] == [row.method for row in committed]
    for row, other in zip(found, committed, strict=True):
        # The last digit is rounded, and the order of the sums of float64 is BLAS's.
        assert (row.error, row.worst) == pytest.approx((other.error, other.worst), rel=1.5e-3), row


def test_all_was_measured() -> None:
    rows = script().read(COMMITTED)
    assert {(row.data, row.depth) for row in rows} == {(d, k) for d in script().DATA for k in script().DEPTHS}
    assert {row.method for row in rows} == {"sgemm", "all", *map(str, script().CHUNKS)}


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = list(script().measure("student t, 3", 64, 3))
    script().write(rows, tmp_path / "rows.csv")
    assert script().read(tmp_path / "rows.csv") == rows


def test_the_table_marks_what_is_worse_than_sgemm() -> None:
    row = script().Row
    rows = [row("normal", 64, "sgemm", 2e-7, 0), row("normal", 64, "16", 1e-7, 0), row("normal", 64, "all", 3e-7, 0)]
    [names, line] = script().table(rows).splitlines()
    assert names.split() == ["data", "K", "sgemm", *map(str, script().CHUNKS), "all"]
    assert line.split() == ["normal", "64", "2.0e-07", "1.0e-07", "3.0e-07*"]
