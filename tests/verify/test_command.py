"""`fusegen verify`: output, exit codes, refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run_here

pytestmark = [pytest.mark.torch, pytest.mark.nvcc]

ROOT = Path(__file__).resolve().parents[2]
# Small: nothing is kept of what a command compiles.
SPEC = """\
fusegen: 1
name: demo
about: A chain of the tests
dims: {batch: 64, features: 48}
arguments:
  features: {type: dim}
inputs:
  x: [batch, features]
dtypes: [float32]
chain:
  - {op: mul, parameter: scale, shape: [features], init: randn}
  - {op: silu}
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "fusegen", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "demo.yaml").write_text(SPEC, encoding="utf-8")
    assert run_here("build", "--no-compile", "specs/demo.yaml", cwd=tmp_path).returncode == 0
    return tmp_path


def test_passes_as_json_and_fails_where_a_kernel_is_not_what_the_spec_says(project: Path) -> None:
    done = run("verify", "--all", "--emulate", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] and [package["name"] for package in document["packages"]] == ["demo"]
    assert document["device"] == "emulated on a CPU"
    kernels = project / "generated" / "demo" / "kernels.cu"
    kernels.write_text(kernels.read_text() + "// edited\n")
    done = run("verify", "specs/demo.yaml", "--emulate", cwd=project)
    assert done.returncode == 1 and "fusegen check" in done.stderr and "Traceback" not in done.stderr


def test_without_a_gpu_emulation_is_named(project: Path) -> None:
    done = run("verify", "specs/demo.yaml", cwd=project)
    assert done.returncode == 2 and "no CUDA device" in done.stderr and "--emulate" in done.stderr


def test_without_specs_it_is_a_usage_error(project: Path) -> None:
    for arguments in (("verify",), ("verify", "--emulate")):
        done = run_here(*arguments, cwd=project)
        assert done.returncode == 2 and b"--all" in done.stderr
