"""What a terminal shows while a command works, and a pipe does not."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fusegen.build.progress import shown
from fusegen.progress import tell, within

ROOT = Path(__file__).resolve().parents[2]
SPECS = ["gemm_add_relu", "matmul_min_subtract"]
# Its stderr is a terminal, and its stdout is none.
ON_A_TERMINAL = """
import os, pty, subprocess, sys
outer, inner = pty.openpty()
with open("out", "wb") as out:
    process = subprocess.Popen(sys.argv[1:], stdout=out, stderr=inner)
os.close(inner)
while True:
    try:
        sys.stdout.buffer.write(os.read(outer, 4096))
    except OSError:
        break
sys.exit(process.wait())
"""


def test_a_line_with_what_and_how_far() -> None:
    file = io.StringIO()
    with shown(Console(file=file, force_terminal=True, color_system=None, width=100)), within("encoder", 3, 7):
        tell("tracing")
    assert "encoder: tracing" in file.getvalue() and "3/7 0:0" in file.getvalue()
    tell("nobody listens")
    assert "nobody" not in file.getvalue()


def test_nothing_without_a_terminal() -> None:
    file = io.StringIO()
    with shown(Console(file=file, force_terminal=False)), within("encoder", 3, 7):
        tell("tracing")
    assert file.getvalue() == ""


def test_nothing_where_colours_alone_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a notebook does, and many a CI, to which a line that is drawn again and again is a line each time."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    console = Console(file=file, width=100)
    assert console.is_terminal
    with shown(console), within("encoder", 3, 7):
        tell("tracing")
    assert file.getvalue() == ""


def test_one_inside_another() -> None:
    """As in a program that shows progress of its own: some versions of rich refuse a second line."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    with shown(console), within("outer", 0, 2), shown(console):
        tell("inner")
    assert "outer" in file.getvalue()


def test_rendering_alone(tmp_path: Path) -> None:
    specs = [str(ROOT / "specs" / f"{name}.yaml") for name in SPECS]
    command = [sys.executable, "-m", "fusegen", "build", "--no-compile", *specs]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
    environment.pop("FORCE_COLOR", None)
    live = subprocess.run(
        [sys.executable, "-c", ON_A_TERMINAL, *command], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    assert f"rendering {SPECS[1]}" in live.stdout.decode() and "1/2" in live.stdout.decode()
    assert (tmp_path / "out").read_bytes() == b""
    plain = subprocess.run(
        [*command, "--output", "other"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    *wrote, closing, command = plain.stderr.splitlines()
    assert plain.stdout == "" and len(wrote) == 4 and all(line.startswith("wrote other") for line in wrote)
    assert closing.startswith("other has the sources of 2 packages") and "--output other" in command
