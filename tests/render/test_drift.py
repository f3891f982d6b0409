"""generated/ is what specs/ and templates/ say, which is what `fusegen check` compares.

After a change of either: fusegen build --no-compile --prune specs
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fusegen.check.report import formatted
from fusegen.check.run import check
from fusegen.render.files.manifest import MANIFEST
from tests.render.rendering import ROOT, rendered


def test_generated_is_what_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    report = check([Path("specs")], Path("generated"))
    assert report.ok, formatted(report, "text")
    packages = sum(path.endswith("/plan.json") for path in rendered())
    assert (report.packages, report.files) == (packages, len(rendered()))


def test_git_has_the_sources_and_ignores_what_is_built() -> None:
    listed = subprocess.run(["git", "ls-files", "generated"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode or not listed.stdout:
        pytest.skip("needs a git checkout")
    assert set(listed.stdout.split()) == {f"generated/{path}" for path in (*rendered(), MANIFEST)}


@pytest.mark.parametrize("path", ["x/_C.so", "x/_C.key", ".build/x.lock", ".build/x/kernels.o", "x/__pycache__/x.pyc"])
def test_git_ignores_what_a_check_does(path: str) -> None:
    command = ["git", "check-ignore", "--quiet", "--no-index", f"generated/{path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    if done.returncode > 1:
        pytest.skip("needs a git checkout")
    assert done.returncode == 0


@pytest.mark.parametrize("path", ["generated/x/kernels.cu", "specs/x.yaml", "templates/support/x.cuh"])
def test_git_leaves_line_endings_alone(path: str) -> None:
    command = ["git", "check-attr", "eol", "linguist-generated", "--", path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("needs a git checkout")
    generated = "true" if path.startswith("generated/") else "unspecified"
    assert done.stdout.splitlines() == [f"{path}: eol: lf", f"{path}: linguist-generated: {generated}"]
