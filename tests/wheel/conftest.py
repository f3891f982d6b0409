"""A wheel of two small specs, packed by the command line once for all workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
SPECS = Path(__file__).parent / "specs"
USE = Path(__file__).parent / "use_wheel.py"


def run(*command: str | Path, path: Path | None = ROOT) -> str:
    """What a command prints. path: where it finds modules besides the installed ones."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pack(directory: Path, *options: str | Path) -> Path:
    """The wheel of `fusegen wheel`."""
    arguments = [SPECS, "--name", "My.Kernels", "--version", "1.2", "--output", directory, *options]
    return Path(run(sys.executable, "-m", "fusegen", "wheel", *arguments).removeprefix("wrote ").strip())


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For sm_90 alone, under a license."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with FileLock(root / "wheel.lock"):
        found = list((root / "dist").glob("*.whl"))
        license_ = ("--license", "MIT", "--license-file", ROOT / "NOTICE")
        return found[0] if found else pack(root / "dist", "--target", "sm_90", *license_)


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory into which pip installed it: pip takes its tags for this machine's."""
    site = tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel)
    return site
