"""The CSV: written as rows come, read back as they were, the latest run of a configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fusegen.bench.rows import COLUMNS, Row, append_rows, by_configuration, latest, read_rows
from fusegen.errors import SpecError


def row(**changes) -> Row:
    usual = Row(
        "2026-01-01T00:00:00Z", "NVIDIA Test", "2.0", "13.0", "0.1", "demo", "4x8x8", "fp32", "eval-forward", "fused"
    )
    return dataclasses.replace(usual, **changes)


def test_columns_are_stable() -> None:
    # Committed results have them: a new one goes to the end, and old files get it too.
    assert list(COLUMNS) == (
        "run,gpu,torch,cuda,fusegen,spec,shape,dtype,mode,subject,device_ms,device_ms_q1,device_ms_q3,device_samples,"
        "wall_us,wall_us_q1,wall_us_q3,wall_samples,peak_bytes,device_ratio,wall_ratio,tail_bytes,floor_ms,"
        "contraction_ms,tail_ms,tail_over_floor,copy_gb_s,contraction_tflop_s,targets,seed,command,schedule,launches"
    ).split(",")


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [
        row(device_ms=0.25, device_samples=60, peak_bytes=3, targets="sm_90 sm_100", command='a, "b"'),
        row(subject="eager", wall_us=12.5, seed=0),
        row(schedule="column / row", launches="column 16x1x4 of 32x16, final_reduction 2 of 128 / row 8 of 32x8"),
    ]
    path = tmp_path / "new" / "bench.csv"
    for one in rows:
        append_rows(path, [one])
    assert read_rows(path) == rows
    assert path.read_text().count("device_ms_q1") == 1


def test_a_later_run_takes_the_place_of_an_earlier_one_with_all_its_subjects() -> None:
    old = [row(subject=name, device_ms=1.0) for name in ("fused", "eager", "compile")]
    other = [row(mode="train-forward"), row(gpu="Another GPU"), row(shape="8x8x8"), row(dtype="bf16")]
    new = [row(run="2026-01-02T00:00:00Z", subject=name, device_ms=2.0) for name in ("eager", "fused")]
    for rows in ([*old, *other, *new], [*new, *old, *other]):
        found = latest(rows)
        assert len(found) == 6 and set(found) == {*other, *new}


def test_the_order_is_that_of_the_names(tmp_path: Path) -> None:
    rows = [
        row(dtype=dtype, mode=mode, subject=subject)
        for subject in ("max-autotune", "fused", "copy")
        for mode in ("train-forward-backward", "eval-forward")
        for dtype in ("bf16", "fp32")
    ]
    found = [(r.dtype, r.mode, r.subject) for r in latest(rows)]
    assert found[:3] == [("fp32", "eval-forward", s) for s in ("copy", "fused", "max-autotune")]
    assert [key[:2] for key in found[::3]] == [
        (dtype, mode) for dtype in ("fp32", "bf16") for mode in ("eval-forward", "train-forward-backward")
    ]
    assert [sorted(subjects) for _, subjects in by_configuration(rows)] == [["copy", "fused", "max-autotune"]] * 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "columns"),
        ("a,b\n1,2\n", "columns"),
        (",".join(COLUMNS) + "\n1,2\n", "bench.csv:2"),
        (",".join(COLUMNS) + "\n" + ",".join(["x"] * len(COLUMNS)) + "\n", "bench.csv:2"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "bench.csv"
    path.write_text(text)
    with pytest.raises(SpecError, match=expected):
        read_rows(path)


def test_a_file_that_is_not_there_or_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        read_rows(tmp_path / "absent.csv")
    with pytest.raises(SpecError, match="cannot be written"):
        append_rows(tmp_path, [row()])
