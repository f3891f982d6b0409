"""A disk that is full, played by a limit on the size of files: what was there stays, and the message says why."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "specs" / "gemm_multiply_leakyrelu.yaml"


def run(cwd: Path, limit: int | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    def full() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "fusegen", "build", *arguments, f"specs/{SPEC.name}"]
    return subprocess.run(command, cwd=cwd, env=environment, preexec_fn=full, capture_output=True, text=True)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / SPEC.name).write_text(SPEC.read_text(), encoding="utf-8")
    assert run(tmp_path, None, "--no-compile").returncode == 0
    return tmp_path


def test_writing_sources_leaves_whole_files(project: Path) -> None:
    before = contents(project / "generated")
    text = (project / "specs" / SPEC.name).read_text()
    (project / "specs" / SPEC.name).write_text(
        text.replace("op: leaky_relu", "op: gelu", 1)
        .replace(", negative_slope: negative_slope", "")
        .replace("  negative_slope: {type: float}\n", "")
    )
    done = run(project, 4096, "--no-compile")
    assert done.returncode == 2 and "FG502" in done.stderr and "Traceback" not in done.stderr, done.stderr
    after = contents(project / "generated")
    assert set(after) == set(before), "no temporary file, nothing lost"
    assert run(project, None, "--no-compile").returncode == 0
    fresh = contents(project / "generated")
    assert fresh[f"{SPEC.stem}/kernels.cu"] != before[f"{SPEC.stem}/kernels.cu"]
    assert not [path for path, data in after.items() if data not in (before[path], fresh[path])]


@pytest.mark.torch
@pytest.mark.nvcc
def test_compiling_keeps_the_previous_extension(project: Path) -> None:
    extension = project / "generated" / SPEC.stem / "_C.so"
    extension.write_bytes(b"the previous one")
    done = run(project, 20_000)
    assert done.returncode == 1 and "command:" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert extension.read_bytes() == b"the previous one"
    assert not [path for path in (project / "generated").rglob("*") if path.suffix == ".tmp"]
