"""`fusegen fuse` as a process, and the page about it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fusegen.cli import main

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


def in_process(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_without_a_dry_run(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Specs and packages are written, and are what `fusegen check` finds in order."""
    monkeypatch.chdir(model.parent)
    command = ("fuse", "model.py:Model", "--no-compile", "--directory", "here", "--target", "sm_80")
    code, out, err = in_process(capsys, *command)
    assert code == 0 and out.startswith("replaced: 4\n"), err
    specs = sorted((model.parent / "here" / "specs").iterdir())
    assert [path.name for path in specs] == ["block.yaml"]
    assert all("targets: [sm_80]" in path.read_text(encoding="utf-8") for path in specs)
    code, out, err = in_process(capsys, "check", "here/specs", "--output", "here/generated")
    assert code == 0, out + err


def test_a_wrong_target(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = in_process(capsys, "fuse", str(model) + ":Model", "--target", "sm_1")
    assert code == 2 and "error[FG212]" in err and not (model.parent / "fused").exists()


def test_in_a_script(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's line for a training script, where no GPU is."""
    import torch

    from fusegen.fusing import fuse

    monkeypatch.syspath_prepend(str(model.parent))
    monkeypatch.chdir(model.parent)
    monkeypatch.setattr(fuse, "compile_plans", lambda *_: None)
    names: dict[str, object] = {"torch": torch}
    try:
        exec(blocks("python")[1].replace('"cuda"', '"cpu"'), names)
    finally:
        sys.modules.pop("model", None)
    assert (model.parent / "fused" / "generated" / "block").is_dir()
