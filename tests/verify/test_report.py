"""The table and the JSON of a verification."""

from __future__ import annotations

import json
import math

import pytest
from rich.console import Console

torch = pytest.importorskip("torch")

from fusegen.verify.judgement.findings import Finding, Report, nearness  # noqa: E402
from fusegen.verify.judgement.policy import INFINITE, ZERO, Comparison, Error  # noqa: E402
from fusegen.verify.judgement.report import table, to_json  # noqa: E402

LIMIT = Error(1e-3, 1e-3)


def finding(name: str, largest: float, *, check: str = "numerics", shape: str = "3x5", ok: bool = True) -> Finding:
    item = Comparison(name, Error(largest, largest / 2), Error(1e-4, 1e-4), LIMIT, ok)
    return Finding(check, shape, "float32", "train", item)


def statement(check: str, ok: bool, note: str = "") -> Finding:
    return Finding(check, "3x5", "float32", "", Comparison.statement(f"{check} holds", ok, note))


def text(report: Report) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table(report))
    return console.export_text()


def test_the_worst_of_each_quantity_is_shown() -> None:
    report = Report(
        "demo", 1.0, [finding("output", 2e-4), finding("output", 5e-4, shape="7x9"), finding("grad x", 1e-5)]
    )
    lines = text(report).splitlines()
    (output,) = [line for line in lines if line.strip().startswith("output")]
    assert "5.0e-04" in output and "7x9" in output and "50%" in output
    assert any("3 comparisons, passed" in line for line in lines)


def test_failures_are_listed_and_counted() -> None:
    report = Report("demo", 1.0, [finding("output", 2e-3, ok=False), statement("opcheck", False, "test_schema: bad")])
    shown = text(report)
    assert "2 failed" in shown and "test_schema: bad" in shown and not report.ok


def test_what_was_left_out_of_a_comparison_is_said() -> None:
    items = [Comparison("output", ZERO, ZERO, LIMIT, True, "", share) for share in (0.0, 0.125, 0.01)]
    shown = text(Report("demo", 1.0, [Finding("numerics", "3x5", "float32", "train", item) for item in items]))
    assert "up to 12.5% of an output left out, near jumps" in shown
    assert "left out" not in text(Report("demo", 1.0, [finding("output", 1e-5)]))


def test_what_could_not_be_checked_is_said() -> None:
    report = Report("demo", 1.0, [statement("bitwise", True)], {"CUDA graph": "needs a GPU"})
    assert "not made: needs a GPU" in text(report) and report.ok


def test_sizes_without_room_are_said() -> None:
    place = {"numerics 3x40001x40001 float32": "it takes 86.4 GB of 79.0: 3x38209x38209 in its place"}
    report = Report("demo", 1.0, [statement("bitwise", True)], sizes=place)
    assert "numerics 3x40001x40001 float32: it takes 86.4 GB of 79.0: 3x38209x38209 in its place" in text(report)
    data = to_json([report], device="test", torch_version="2", seed=0)
    assert data["packages"][0]["sizes"] == place and report.ok


def test_a_report_without_findings_is_no_success() -> None:
    assert not Report("demo").ok


def test_json_is_valid_whatever_the_figures_are() -> None:
    broken = Finding("numerics", "3x5", "float32", "train", Comparison("output", INFINITE, ZERO, LIMIT, False, "shape"))
    reports = [Report("good", 1.0, [finding("output", 1e-5)]), Report("bad", 2.0, [broken], {"opcheck": "why"})]
    document = to_json(reports, device="none", torch_version="2", seed=3)
    again = json.loads(json.dumps(document, allow_nan=False))
    assert (again["format"], again["ok"], again["seed"]) == (1, False, 3)
    good, bad = again["packages"]
    assert good["ok"] and not bad["ok"] and bad["skipped"] == {"opcheck": "why"}
    (shown,) = bad["findings"]
    assert shown["fused"] == {"largest": None, "norm": None} and shown["bound"]["largest"] == 1e-3
    assert good["findings"][0]["quantity"] == "output"


@pytest.mark.parametrize(
    ("fused", "limit", "expected"),
    [(Error(1, 1), Error(2, 4), 0.5), (Error(1, 3), Error(2, 4), 0.75), (ZERO, ZERO, 0.0), (LIMIT, ZERO, math.inf)],
)
def test_nearness(fused: Error, limit: Error, expected: float) -> None:
    assert nearness(Comparison("x", fused, ZERO, limit, True)) == expected
