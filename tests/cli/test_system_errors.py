"""What the operating system refuses is reported as what it is, and is no bug of fusegen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fusegen.cli import main
from tests.cli.test_cli import ROOT, SPEC

LONG = "n" * 300


def invoke(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "specs").mkdir()
    shutil.copy(SPEC, tmp_path / "specs")
    (tmp_path / "circle").symlink_to("circle")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        f"plan {LONG}.yaml",
        f"plan {LONG}",
        f"build --no-compile {LONG}",
        f"build --no-compile specs -o {LONG}",
        f"check {LONG}",
        f"check -o {LONG}",
        f"check --patch {LONG}",
        f"export specs/{SPEC.name} -o {LONG}",
        f"export specs/{SPEC.name} --inputs-from {LONG}",
        f"import {LONG}.py:Model -o a.yaml",
        f"import absent.py:Model -o {LONG}.yaml",
        f"bench --from-csv {LONG}",
        f"bench specs --csv {LONG}",
        f"wheel {LONG}",
    ],
)
def test_a_name_that_is_too_long(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(*command.split()) in (1, 2)
    message = capsys.readouterr().err
    assert "bug" not in message and "File name too long" in message and LONG in message


@pytest.mark.parametrize("command", ["plan circle", "check -o circle", "build --no-compile specs -o circle"])
def test_a_circle_of_links(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(*command.split()) in (1, 2)
    assert "bug" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "build --no-compile", "check"])
def test_a_directory_that_may_not_be_searched(command: str, project: Path, monkeypatch, capsys) -> None:
    """Played, as tests may run as root, who may search every directory."""
    stat = os.stat

    def refusing(path, *arguments, **options):
        if os.fsdecode(path).startswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", refusing)
    assert invoke(*command.split(), "closed/specs") == 1
    assert capsys.readouterr().err == "error: closed/specs: Permission denied\n"


def test_the_place_is_told_in_one_line_and_debugging_shows_more(monkeypatch, capsys) -> None:
    def refusing(*_: object) -> None:
        raise OSError(5, "Input/output error", b"a\nb\xff")

    monkeypatch.setattr("fusegen.spec.find.spec_files", refusing)
    assert invoke("plan", "specs") == 1
    assert capsys.readouterr().err == "error: a\\nb\\udcff: Input/output error\n"
    monkeypatch.setenv("FUSEGEN_DEBUG", "1")
    assert invoke("plan", "specs") == 1
    assert capsys.readouterr().err.startswith("Traceback")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("plan", "specs"), ("--version",), ("check", "specs", "--help")])
def test_an_output_on_a_full_disk(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "fusegen", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")
        done = subprocess.run(command, env=environment, stdout=full, stderr=full)
        assert done.returncode == 1


@pytest.mark.parametrize("name", ["\udcff", "a\nb", "Ä"])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_paths_of_any_bytes(name: str, locale: str, project: Path) -> None:
    """In a locale without letters beyond ASCII, and without Python's own remedies for one."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": locale}
    environment |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    (project / name).mkdir()
    shutil.copy(SPEC, project / name)
    for command, code in ((["build", "--no-compile"], 0), (["check"], 0), (["check"], 1)):
        arguments = [sys.executable, "-m", "fusegen", *command, name, "--output", f"{name}/out"]
        done = subprocess.run(arguments, env=environment, capture_output=True)
        assert done.returncode == code, done.stderr
        if code == 0 and command == ["check"]:
            (project / name / "out" / "manifest.json").unlink()
