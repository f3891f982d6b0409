"""`fusegen fuse` as a process, and the page about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "fusing.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"))


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "fusegen", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(blocks("python")[0], encoding="utf-8")
    return path


def test_the_page(model: Path) -> None:
    """Its command prints what it says and writes nothing. After a change: FUSEGEN_ACCEPT=1 pytest, here."""
    (command,) = blocks("sh")
    done = run(model.parent, *command.removeprefix("fusegen ").split())
    assert done.returncode == 0, done.stderr
    (shown,) = blocks("text")
    if os.environ.get("FUSEGEN_ACCEPT"):
        page = PAGE.read_text(encoding="utf-8").replace(f"```text\n{shown}```", f"```text\n{done.stdout}```")
        PAGE.write_text(page, encoding="utf-8", newline="\n")
        (shown,) = blocks("text")
    assert done.stdout == shown
    assert not (model.parent / "fused").exists()


def test_without_a_dry_run(model: Path) -> None:
    """Specs and packages are written, and are what `fusegen check` finds in order."""
    done = run(model.parent, "fuse", "model.py:Model", "--no-compile", "--directory", "here", "--target", "sm_80")
    assert done.returncode == 0 and done.stdout.startswith("replaced: 8\n"), done.stderr
    specs = sorted((model.parent / "here" / "specs").iterdir())
    assert [path.name for path in specs] == ["linear_layer_norm_gelu.yaml", "norm.yaml"]
    assert all("targets: [sm_80]" in path.read_text(encoding="utf-8") for path in specs)
    checked = run(model.parent, "check", "here/specs", "--output", "here/generated")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_wrong_target(model: Path) -> None:
    done = run(model.parent, "fuse", "model.py:Model", "--target", "sm_1")
    assert done.returncode == 2 and "error[FG212]" in done.stderr and not (model.parent / "fused").exists()


def test_in_a_script(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's line for a training script, where no GPU is."""
    import torch

    from fusegen.fusing import fuse

    monkeypatch.syspath_prepend(str(model.parent))
    monkeypatch.chdir(model.parent)
    monkeypatch.setattr(fuse, "_build", lambda *_: None)
    names: dict[str, object] = {"torch": torch}
    try:
        exec(blocks("python")[1].replace('"cuda"', '"cpu"'), names)
    finally:
        sys.modules.pop("model", None)
    assert (model.parent / "fused" / "generated" / "norm").is_dir()
