"""The promises of README, .ci/run, pyproject.toml and constraints.txt, held against each other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("test", "nvcc", "wheel", "site", "dev")  # of CI


def test_ci_runs_the_command_of_the_readme() -> None:
    command = (ROOT / ".ci/run").read_text().splitlines()[-1]
    assert "pytest" in command
    assert command in (ROOT / "README.md").read_text().splitlines()


def test_the_first_look_at_the_tests() -> None:
    readme, contributing = ((ROOT / name).read_text().splitlines() for name in ("README.md", "CONTRIBUTING.md"))
    (command,) = [line for line in contributing if line.startswith("python -m pytest -n")]
    assert command in readme
    assert all((ROOT / path).is_dir() for path in re.findall(r"tests/\w+", command))


def test_the_license() -> None:
    """Of the tool, and that what it writes has none, in the wheel and for who reads the README."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE", "NOTICE"])
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    for name in ("NOTICE", "README.md"):
        assert "without any condition" in (ROOT / name).read_text()


def test_every_dependency_is_pinned() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    )
    normal = {name.lower().replace("_", "-").replace(".", "-") for name in pins}
    for requirement in (*project["dependencies"], *(each for name in EXTRAS for each in extras[name])):
        name = re.split(r"[<>=]", requirement)[0].lower().replace(".", "-")
        assert name in normal, requirement
    assert all(re.fullmatch(r"[0-9.]+", version) for version in pins.values())


def test_import_is_light() -> None:
    code = "import sys, fusegen, fusegen.build; sys.exit(bool({'torch', 'numpy', 'rich'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_templates_are_found() -> None:
    from fusegen.paths import templates_directory

    assert (templates_directory() / "support").is_dir()
