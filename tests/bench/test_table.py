"""The table on a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from fusegen.bench.command import MIN_WIDTH
from fusegen.bench.table import ceilings, number, tables
from tests.bench.test_rows import row


def shown(rows, width: int = MIN_WIDTH) -> str:
    console = Console(file=io.StringIO(), width=width)
    for table in tables(rows):
        console.print(table)
    return console.file.getvalue()


def test_one_line_a_subject_with_what_is_known_of_it() -> None:
    common = {"copy_gb_s": 3021.4, "contraction_tflop_s": 51.2, "mode": "train-forward"}
    text = shown(
        [
            row(subject="copy", device_ms=0.02, **common),
            row(
                subject="fused",
                device_ms=2.7111,
                device_ms_q1=2.70,
                device_ms_q3=2.75,
                wall_us=2800.0,
                device_ratio=0.98,
                wall_ratio=1.021,
                tail_ms=0.031,
                tail_over_floor=1.55,
                peak_bytes=3 * 2**20,
                schedule="column / l2",
                **common,
            ),
            row(subject="reduce-overhead", device_ms=2.9, **common),
            row(shape="8x8x8", subject="eager", wall_us=70.0),
        ]
    )
    words = [line.split() for line in text.splitlines()]
    lines = {
        name: found[found.index(name) :] for found in words for name in ("fused", "reduce-overhead") if name in found
    }
    figures = ["2.711", "2.7-2.75", "2800", "0.98", "1.02", "0.031", "1.55", "3.0"]
    assert lines["fused"] == ["fused", *figures, "column", "/", "l2"]
    assert lines["reduce-overhead"] == ["reduce-overhead", "2.9"]
    assert "demo 4x8x8" in text and "demo 8x8x8" in text and text.count("train fwd") == 1
    assert "NVIDIA Test, torch 2.0, CUDA 13.0: at best copy 3021 GB/s, fp32 product 51 TFLOP/s" in text


def test_without_ceilings_the_gpu_is_still_named() -> None:
    assert ceilings([row()]) == "NVIDIA Test, torch 2.0, CUDA 13.0"


def test_nothing_is_wrapped_at_the_width_of_a_file() -> None:
    wide = row(
        dtype="fp32",
        mode="train-forward-backward",
        subject="reduce-overhead",
        device_ms=1234.5,
        device_ms_q1=0.012345,
        device_ms_q3=0.012399,
        wall_us=123456.7,
        device_ratio=10.01,
        wall_ratio=10.01,
        tail_ms=0.12345,
        tail_over_floor=12.34,
        peak_bytes=2**34,
        schedule="two_pass / pointwise",
    )
    lines = [line for line in shown([wide]).splitlines() if "reduce" in line]
    assert len(lines) == 1 and "train fwd+bwd" in lines[0]
    assert lines[0].rstrip().endswith("16384.0  two_pass / pointwise")


def test_numbers() -> None:
    assert [number(v) for v in (None, 0.0, 0.00001234, 0.12344, 12.3449, 999.96, 123456.7)] == [
        "",
        "0",
        "0.000012",
        "0.1234",
        "12.34",
        "1000",
        "123457",
    ]
