"""benchmarks/models.py by its self-test, and what the page says of its rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.test_page import ROOT, script

pytestmark = pytest.mark.torch


def test_self_test(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "benchmarks/models.py", "--self-test", "--out", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ratios_are_of_one_model_on_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    known = {"precision": "amp", "places": "3", "gpu": "G", "torch": "2", "fusegen_ms": "2", "triton_ms": "1.5"}
    lines = [
        {**known, "model": "a", "route": "compile", "device_ms": "10", "peak_mib": "100"},
        {**known, "model": "a", "route": "fusegen", "device_ms": "8", "peak_mib": "110"},
        {**known, "model": "b", "route": "fusegen", "device_ms": "1", "peak_mib": "1"},
        {**known, "model": "a", "route": "compile", "device_ms": "1", "peak_mib": "1", "gpu": "H"},
    ]
    tables: list[list[dict[str, str]]] = []
    text = script("performance_models").models_section(lines, lambda table: str(tables.append(list(table))))
    ((row,),) = tables
    assert (row["model"], row["fusegen / torch.compile"], row["memory / torch.compile's"]) == ("a", "0.800", "1.10")
    assert row["generated kernels"] == "3.500, 3.500"
    assert "0.800 in the geometric mean" in text


def test_the_table_of_starts() -> None:
    figures = {"compile": ("40.0", "4.0", "20.0"), "fusegen": ("30.0", "6.0", "15.0")}
    lines = [
        {"model": "net", "route": route, "first_s": first, "later_s": later, "host_ms": host}
        | {"gpu": "a GPU", "torch": "2", "cores": "16"}
        for route, (first, later, host) in figures.items()
    ]
    tables: list = []
    text = script("performance_models").starts_section(lines, lambda table: str(tables.extend(table)))
    assert "0.750" in text and "16 cores" in text
    assert list(tables[0].values()) == ["net", "40.0, 30.0", "4.0, 6.0", "20.0, 15.0"]
