"""`fusegen bench` as a process, and what it does between its arguments and the figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusegen.bench import command
from fusegen.bench.names import PEERS
from fusegen.bench.options import Options
from fusegen.bench.rows import append_rows, read_rows
from fusegen.errors import SpecError
from tests.bench.standins import CHAIN, ScriptedClock, stand_in
from tests.bench.test_rows import row

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str | Path, cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200", **changes}
    words = [sys.executable, "-m", "fusegen", "bench", *map(str, arguments)]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "demo.yaml"
    path.write_text(CHAIN.format(name="demo"), encoding="utf-8")
    return path


def test_without_a_gpu_it_is_refused(spec: Path) -> None:
    done = run(spec, cwd=spec.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no CUDA device" in done.stderr and "--from-csv" in done.stderr


def test_a_peer_that_there_is_not(spec: Path) -> None:
    done = run(spec, "--against", "eager,triton", cwd=spec.parent)
    assert done.returncode == 2 and "triton" in done.stderr
    assert all(peer in done.stderr for peer in PEERS)


def test_neither_specs_nor_a_csv_or_both(spec: Path) -> None:
    for arguments in ((), (spec, "--from-csv", "a.csv"), ("--from-csv", "a.csv", "--csv", "b.csv")):
        done = run(*arguments, cwd=spec.parent)
        assert done.returncode == 2 and "--from-csv" in done.stderr


def test_a_shape_that_no_spec_has_is_refused_before_anything_is_measured(spec: Path) -> None:
    done = run(spec, "--shapes", "4x4", cwd=spec.parent)
    assert done.returncode == 2 and "demo: 4x4 has 2 extents" in done.stderr


def test_a_csv_of_another_kind_is_not_appended_to(spec: Path) -> None:
    path = spec.parent / "notes.csv"
    path.write_text("a,b\n1,2\n")
    done = run(spec, "--csv", path, cwd=spec.parent)
    assert done.returncode == 2 and "notes.csv" in done.stderr and path.read_text() == "a,b\n1,2\n"


def test_a_csv_is_shown_again_without_torch_and_without_a_gpu(tmp_path: Path) -> None:
    append_rows(tmp_path / "a.csv", [row(subject="fused", device_ms=1.5), row(subject="eager", device_ms=3.0)])
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')\n")
    done = run("--from-csv", "a.csv", cwd=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 0, done.stderr
    assert "demo 4x8x8" in done.stdout and "1.5" in done.stdout and "NVIDIA Test" in done.stdout
    assert run("--from-csv", "absent.csv", cwd=tmp_path).returncode == 2


def test_plots_of_a_csv(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'fusegen[bench]'")
    append_rows(tmp_path / "a.csv", [row(subject="fused", device_ms=1.5), row(subject="eager", device_ms=3.0)])
    done = run("--from-csv", "a.csv", "--plots", "plots", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wrote plots/times_demo_4x8x8.svg" in done.stdout
    assert {path.suffix for path in (tmp_path / "plots").iterdir()} == {".svg", ".png"}


def test_plots_without_matplotlib_name_the_extra(tmp_path: Path, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else found(name))
    append_rows(tmp_path / "a.csv", [row()])
    with pytest.raises(SpecError, match=r"pip install 'fusegen\[bench\]'"):
        command.bench_csv(tmp_path / "a.csv", tmp_path / "plots")
    # Before anything is measured, and before a GPU is missed.
    with pytest.raises(SpecError, match="matplotlib"):
        command.bench_specs([spec], tmp_path, Options(), None, tmp_path / "plots")


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """bench_specs on a chain of which PyTorch's operators stand in for the kernels."""
    import fusegen.bench.ceilings as ceilings
    import fusegen.bench.clock as clock
    import fusegen.verify.subjects.packages as packages

    subject = stand_in(tmp_path, "bench_command")
    monkeypatch.setattr(command, "require_cuda", lambda: None)
    monkeypatch.setattr(clock, "CudaClock", lambda: ScriptedClock((1.0, 10.0, 12.0, 15.0)))
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda *what: ceilings.Ceilings(1000.0, {"fp32": 50.0}))
    monkeypatch.setattr(packages, "open_subject", lambda *what, **more: subject)
    options = Options(against=("eager",), dtypes=("fp32", "fp16"), shapes=("4x4", "8x4x6"))
    spec = tmp_path / "bench_command.yaml"

    def call(csv: Path) -> bool:
        return command.bench_specs([spec], tmp_path, options, csv, None)

    return call, subject, options.command([spec])


def test_rows_tables_and_what_was_left_out(measured, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    call, _, text = measured
    assert call(tmp_path / "bench.csv") is True
    rows = read_rows(tmp_path / "bench.csv")
    assert {row.command for row in rows} == {text} and {row.shape for row in rows} == {"8x4x6"}
    assert len(rows) == 3 * 4 and len({row.run for row in rows}) == 1
    shown, progress = capsys.readouterr()
    assert "bench_command 8x4x6" in shown and "copy 1000 GB/s" in shown
    assert "4x4 has 2 extents" in shown and "the spec has no float16" in shown
    assert progress.count("best peer eager 15 ms") == 3
    # A second run goes below the first.
    assert call(tmp_path / "bench.csv") is True
    assert read_rows(tmp_path / "bench.csv")[:12] == rows and len(read_rows(tmp_path / "bench.csv")) == 24


def test_it_fails_where_nothing_could_be_measured(measured, tmp_path: Path, monkeypatch, capsys) -> None:
    call, _, _ = measured
    monkeypatch.setattr("fusegen.bench.bench.Bench.measure", lambda self, *what: self.problems.append("no such dtype"))
    assert call(tmp_path / "bench.csv") is False
    assert "no such dtype" in capsys.readouterr().out


def test_a_wrong_module_fails_the_command(measured, tmp_path: Path, monkeypatch, capsys) -> None:
    call, subject, _ = measured
    monkeypatch.setattr(subject.fused_class, "forward", lambda self, x: self.fusegen_reference(x) * 1.01)
    assert call(tmp_path / "bench.csv") is False
    assert not (tmp_path / "bench.csv").exists()
    assert "not timed, wrong: output" in capsys.readouterr().out
