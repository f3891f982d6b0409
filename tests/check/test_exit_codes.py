"""Exit codes of every command where things go wrong that no spec is to blame for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.check.conftest import ROOT
from tests.check.drifts import DRIFTS, A

COMMANDS = [["plan", "specs"], ["build", "--no-compile", "specs"], ["check"]]
EACH = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])


def broken(project, command: list[str], raised: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, where planning runs `raised`."""
    script = (
        "import os, signal, sys\n"
        "import fusegen.errors, fusegen.plan.modules.plan\n"
        f"def make_plan(*arguments):\n    {raised}\n"
        "fusegen.plan.modules.plan.make_plan = make_plan\n"
        "from fusegen.cli import main\n"
        f"main({command!r})\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True)


@EACH
@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        ("raise KeyError('lost')", "KeyError: 'lost'"),
        ("raise RecursionError('too deep')", "RecursionError: too deep"),
        ("raise fusegen.errors.InternalError('[two] kernels')", "report it with the spec: [two] kernels"),
    ],
)
def test_a_bug(project, command: list[str], raised: str, shown: str) -> None:
    done = broken(project, command, raised)
    assert (done.returncode, done.stdout) == (3, "")
    assert "fusegen has a bug, please report it" in done.stderr and shown in done.stderr
    assert "FUSEGEN_DEBUG=1" in done.stderr and "Traceback" not in done.stderr


def test_a_bug_with_its_traceback(project) -> None:
    done = broken(project, ["check"], "raise KeyError('lost')", FUSEGEN_DEBUG="1")
    assert done.returncode == 3 and "fusegen has a bug, please report it" in done.stderr
    assert done.stderr.startswith("Traceback") and "in make_plan" in done.stderr


@EACH
def test_an_interrupt(project, command: list[str]) -> None:
    done = broken(project, command, "os.kill(os.getpid(), signal.SIGINT)")
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


@pytest.mark.parametrize("drift", [None, "spec_changed"])  # little output, and more than a buffer holds
@pytest.mark.parametrize("command", [["plan", "specs"], ["check"], ["check", "--format", "json"]])
def test_nobody_reads_the_output(project, command: list[str], drift: str | None) -> None:
    if drift is not None:
        DRIFTS[drift][0](project)
    read, write = os.pipe()
    os.close(read)
    # Buffered, as usual: what is left of it fails when Python ends.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    process = [sys.executable, "-m", "fusegen", *command]
    done = subprocess.run(process, cwd=project.root, env=environment, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("arguments", [["check", "--nothing"], ["destroy"], ["build"], ["plan", "--json"]])
def test_wrong_usage(project, arguments: list[str]) -> None:
    done = project.fusegen(*arguments)
    assert done.returncode == 2 and b"Usage" in done.stderr and done.stdout == b""


def test_an_output_that_cannot_be_written(project) -> None:
    (project.root / "file").touch()
    done = project.fusegen("build", "--no-compile", "--output", "file/out", f"specs/{A}.yaml")
    assert done.returncode == 2 and b"error[FG502]: cannot write" in done.stderr


def test_a_locale_that_lacks_a_character(project) -> None:
    (project.generated / A / "kernels.cu").write_text("Größe\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "fusegen", "check"]
    done = subprocess.run(command, cwd=project.root, env=environment, capture_output=True)
    assert done.returncode == 1 and rb"-Gr\xf6\xdfe" in done.stdout, done.stderr
