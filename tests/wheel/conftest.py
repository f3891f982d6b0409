"""A wheel of small specs, one of them of two regions, packed by the command line once for all workers."""

from __future__ import annotations

import os
import re
import shlex
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


def commands(page: str, start: str) -> list[list[str]]:
    """Those of the page's shell blocks that start so, without that start."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    lines = "".join(re.findall(r"(?ms)^```sh\n(.*?)^```", text)).splitlines()
    return [shlex.split(line.removeprefix(start)) for line in lines if line.startswith(start)]


def pack(directory: Path, *options: str | Path) -> Path:
    """The wheel of the command in docs/shipping.md, of the specs here."""
    (command,) = commands("shipping.md", "fusegen wheel specs ")
    files = [ROOT / "NOTICE" if each == "LICENSE" else each for each in command]
    made = run(sys.executable, "-m", "fusegen", "wheel", SPECS, *files, "--output", directory, *options)
    return Path(made.removeprefix("wrote ").strip())


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For sm_90 alone."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    with FileLock(root / "wheel.lock"):
        found = list((root / "dist").glob("*.whl"))
        return found[0] if found else pack(root / "dist", "--target", "sm_90")


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory into which pip installed it: pip takes its tags for this machine's."""
    site = tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel)
    return site
