"""examples/package gives a wheel that has the libraries and loads from any working directory, without fusegen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = "mypackage/generated"
USE = """
import sys, mypackage, torch
from mypackage.generated.linear_gelu import LinearGelu
module = LinearGelu(8, 4)
assert LinearGelu is mypackage.LinearGelu and module(torch.randn(2, 8)).shape == (2, 4)
assert "fusegen" not in sys.modules
"""


def run(*command: str | Path, cwd: Path, path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.torch
def test_the_wheel(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    project, output = tmp_path / "project", tmp_path / "project" / "src" / GENERATED
    shutil.copytree(ROOT / "examples" / "package", project)
    fusegen = (sys.executable, "-m", "fusegen")
    run(*fusegen, "build", "--no-compile", "--output", output, "specs", cwd=project, path=ROOT)
    # As a build leaves them.
    built = (f"{GENERATED}/linear_gelu/_C.so", f"{GENERATED}/support/_autograd.2.10.0.so")
    left = (f"{GENERATED}/linear_gelu/_C.key", f"{GENERATED}/.build/linear_gelu/kernels.o")
    for each in (*built, *left):
        (project / "src" / each).parent.mkdir(parents=True, exist_ok=True)
        (project / "src" / each).write_bytes(b"\0")
    offline = ("--no-build-isolation", "--no-deps", "--no-index")
    run(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", "dist", ".", cwd=project, path=ROOT)
    (file,) = (project / "dist").glob("*.whl")
    # It is for this Python and platform.
    assert f"cp{sys.version_info.major}{sys.version_info.minor}-linux_" in file.name
    site = tmp_path / "site"
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        archive.extractall(site)
    assert set(built) <= names and not set(left) & names
    assert {f"{GENERATED}/support/{name}" for name in ("__init__.py", "autograd.cpp")} <= names
    for each in built:  # no libraries
        (site / each).unlink()
    shutil.rmtree(project)
    run(sys.executable, "-c", USE, cwd=tmp_path, path=site)
