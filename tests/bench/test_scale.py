"""What the rows of benchmarks/scale.py tell, its sizes, and its self-test."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusegen.bench.scale import ScaleRow, append_scale, jumps, poor_choices, read_scale
from fusegen.bench.scale_text import report, scale_lines, scale_section
from tests.bench.test_page import script
from tests.bench.test_rows import row as bench_row

ROOT = Path(__file__).resolve().parents[2]


def row(rows: int, channels: int, microseconds: float, schedule: str = "automatic", **fields) -> ScaleRow:
    values = {
        "spec": "demo",
        "program": "forward",
        "dtype": "fp32",
        "groups": 1,
        "microseconds_q1": microseconds * 0.99,
        "microseconds_q3": microseconds * 1.01,
        "samples": 9,
        "bytes": 8 * rows * channels,
        "copy_microseconds": rows * channels / 1e3,
        "ratio_to_copy": microseconds / (rows * channels / 1e3),
        "picoseconds_per_element": microseconds * 1e6 / (rows * channels),
        "chosen": "persistent",
        "best": "persistent",
        "automatic_over_best": None,
        "device": "NVIDIA Test",
        "versions": "torch 2",
    }
    return ScaleRow(
        **values | {"rows": rows, "channels": channels, "microseconds": microseconds} | fields, schedule=schedule
    )


def sizes_module():
    # By path: benchmarks/ is no package.
    spec = importlib.util.spec_from_file_location("scale_sizes", ROOT / "benchmarks" / "scale_sizes.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_rows_are_read_as_they_were_written(tmp_path) -> None:
    rows = [row(64, 1024, 70.0), row(64, 1024, 71.5, "two_pass", automatic_over_best=0.98)]
    for one in rows:
        append_scale(tmp_path / "scale.csv", [one])
    assert read_scale(tmp_path / "scale.csv") == rows


def test_a_choice_is_poor_beyond_the_quartiles_only() -> None:
    def both(automatic: float, two_pass: float, width: float) -> list[ScaleRow]:
        other = row(64, 1024, two_pass, "two_pass", microseconds_q3=two_pass + width)
        return [row(64, 1024, automatic), row(64, 1024, automatic * 1.01, "persistent"), other]

    (choice,) = poor_choices(both(80.0, 70.0, 1.0))
    assert choice.best.schedule == "two_pass" and choice.ratio == pytest.approx(80 / 70)
    assert poor_choices(both(80.0, 70.0, 15.0)) == []
    assert poor_choices(both(75.0, 70.0, 1.0)) == []


def test_the_fastest_schedule_is_no_poor_choice_of_itself() -> None:
    rows = [row(64, 1024, 80.0, chosen="two_pass"), row(64, 1024, 70.0, "two_pass"), row(64, 1024, 90.0, "persistent")]
    assert poor_choices(rows) == []
    rows[0] = row(64, 1024, 80.0)
    assert len(poor_choices(rows)) == 1


def test_jumps_between_neighbours() -> None:
    plain = row(64, 1024, 65.0)
    odd = row(64, 1025, 130.0)
    (jump,) = jumps([plain, odd])
    assert (jump.kind, jump.at, jump.beside) == ("channels", odd, plain)
    assert jump.ratio == pytest.approx(2 * 1024 / 1025) and jump.copy == pytest.approx(1)
    (jump,) = jumps([row(61, 1024, 130.0), plain])
    assert jump.kind == "rows" and jump.at.rows == 61
    (jump,) = jumps([row(32, 2048, 130.0), plain])
    assert jump.kind == "aspect" and jump.at.channels == 2048
    assert (
        jumps([plain, row(64, 4096, 1000.0), row(64, 1025, 500.0, dtype="bf16"), row(64, 1025, 500.0, groups=5)]) == []
    )


def test_what_a_launch_takes_is_no_jump() -> None:
    few, many = row(64, 1024, 65.0), row(128, 1024, 65.0)
    assert jumps([few, many]) == []
    (jump,) = jumps([few, row(128, 1024, 300.0)])
    assert jump.kind == "twice the rows" and jump.at.rows == 128


def test_what_is_printed_of_them() -> None:
    rows = [row(64, 1024, 80.0), row(64, 1024, 64.0, "two_pass"), row(64, 1025, 160.0)]
    text = report(rows)
    assert "- 1.25: demo forward fp32, 64x1024: 80.0 us, two_pass 64.0 us\n" in text and "at 1 size(s)" in text
    assert "- 2.00: demo forward fp32, 64x1025: 2439.02 ps, at 64x1024 1220.70 ps; the copies 1.00 (channels)" in text
    (line,) = scale_lines(rows)
    assert line["share of a copy, to 16 MiB"] == "61% (least 41%)" and line["above"] == "" and line["sizes"] == "2"
    assert line["choice / best"] == "1.25 at 64x1024" and line["largest jump"] == "2.00 at 64x1025"


def test_the_page_has_it_only_where_it_was_measured(tmp_path) -> None:
    page = script()
    assert scale_section([], page._markdown) == ""
    append_scale(tmp_path / "scale_test.csv", [row(64, 1024, 80.0), row(64, 1025, 160.0)])
    text = page.page_of(tmp_path)
    assert "## Scale on NVIDIA Test" in text and "| demo | forward | fp32 | 2 |" in text and "to 0.2502 MiB." in text


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("width", [2, 4])
def test_sizes(grouped: bool, width: int) -> None:
    sizes = sizes_module().sizes(width, grouped, 8 << 30, False)
    assert len(set(sizes)) == len(sizes) and all(size.channels % size.groups == 0 for size in sizes)
    assert {size.rows for size in sizes} >= {1, 1 << 20} and {size.channels for size in sizes} >= {8, 9, 12, 65536}
    assert max(size.rows * size.channels * width for size in sizes) >= 8 << 30
    assert any(size.groups > 1 for size in sizes) == grouped
    assert len(sizes_module().sizes(width, grouped, 8 << 30, True)) < len(sizes)


def test_the_nearest_prime() -> None:
    assert [sizes_module().nearest_prime(n) for n in (8, 31, 1024, 65536)] == [7, 29, 1021, 65537]


@pytest.mark.torch
def test_launchers_are_called_as_they_are_meant_to_be(emulation_cache) -> None:
    pytest.importorskip("torch")
    specs = ("gemm_scale_bn", "gemm_groupnorm_hardtanh")  # without groups, and with a number that the spec leaves open
    command = [sys.executable, "benchmarks/scale.py", "--self-test", "--specs", *specs, "--dtypes", "bf16"]
    environment = {**os.environ, "PYTHONPATH": "."}
    done = subprocess.run(
        [*command, "--cache", emulation_cache], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and "rows as they must be" in done.stdout, done.stdout + done.stderr


def test_what_each_schedule_takes_over_many_rows() -> None:
    """Over the two-pass schedule, of large batch norms in training alone; and of which kind the poor choices are."""
    targets = script("performance_targets")

    def sized(rows: int, channels: int, program: str = "train_forward", chosen: str = "persistent", **times: float):
        fields = {"program": program, "chosen": chosen, "copy_microseconds": 100.0}
        return [row(rows, channels, us, name, **fields) for name, us in times.items()]

    rows = [
        *sized(16384, 4096, automatic=150.0, persistent=300.0, l2=150.0, two_pass=200.0, chosen="l2"),
        *sized(32768, 4096, automatic=486.0, persistent=480.0, l2=180.0, two_pass=200.0),
        *sized(32769, 4096, automatic=200.0, l2=300.0, two_pass=200.0, chosen="two_pass"),
        *sized(16384, 4100, automatic=190.0, l2=220.0, two_pass=200.0, chosen="two_pass"),
        *sized(16384, 4097, automatic=210.0, persistent=800.0, two_pass=200.0, chosen="two_pass"),
        *sized(8191, 8192, automatic=200.0, persistent=900.0, two_pass=200.0),
        *sized(16384, 128, automatic=200.0, persistent=120.0, two_pass=200.0, chosen="two_pass"),
        *sized(16384, 4096, automatic=200.0, persistent=900.0, two_pass=200.0, program="forward"),
    ]
    text = targets.targets_section([bench_row(gpu="NVIDIA Test")], [], rows, [], [], str)
    place = "'chain': 'demo', 'program': 'train_forward', 'dtype': 'fp32'"

    def line(rows: str, fill: str, *figures: str) -> str:
        names = ("sizes", "persistent / two-pass", "L2 / two-pass", "choice / copy")
        pairs = [f"{name!r}: {figure!r}" for name, figure in zip(names, figures, strict=True)]
        return f"{{{place}, 'rows': '{rows}', 'begin at': '{fill}', {', '.join(pairs)}}}"

    expected = (
        line("more", "lines", "1", "", "1.50", "2.00"),
        line("to 32768", "lines", "2", "1.90", "0.82", "2.70"),
        line("to 32768", "neither", "1", "4.00", "", "2.10"),
        line("to 32768", "vectors", "1", "", "1.10", "1.90"),
    )
    assert f"[{', '.join(expected)}]" in text
    assert "Of the 2 choices more than 1.1 times as slow as the best, 1 are persistent" in text
    few = targets.targets_section([bench_row(gpu="NVIDIA Test")], [], rows[-9:-6], [], [], str)
    assert "over many rows" not in few and "as slow as the best" not in few
