"""`fusegen check` as a process: output, exit codes, and what it does without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from tests.check.conftest import ROOT
from tests.check.drifts import DRIFTS, KERNELS, A, B


def text(done: subprocess.CompletedProcess[bytes]) -> tuple[int, str, str]:
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_no_drift(project) -> None:
    code, out, err = text(project.fusegen("check"))
    assert (code, err) == (0, "") and out.startswith("generated is what the specs and templates give")


@pytest.mark.parametrize("arguments", [[], ["specs"], ["specs/"], [f"specs/{A}.yaml"], ["./specs", f"specs/{A}.yaml"]])
def test_drift(project, arguments: list[str]) -> None:
    DRIFTS["a_line_more"][0](project)
    code, out, err = text(project.fusegen("check", *arguments))
    assert (code, err) == (1, "")
    assert f"generated/{KERNELS}: edited by hand\n" in out and "  fusegen build --no-compile " in out


def test_formats(project) -> None:
    DRIFTS["a_line_more"][0](project)
    code, out, err = text(project.fusegen("check", "--format", "json"))
    assert (code, err) == (1, "") and [each["kind"] for each in json.loads(out)["findings"]] == ["edited"]
    code, out, err = text(project.fusegen("check", "--format", "github"))
    assert (code, err) == (1, "") and out.startswith("::error file=")


def test_patch(repository) -> None:
    DRIFTS["a_line_more"][0](repository)
    done = repository.fusegen("check", "--patch", "drift.patch")
    assert done.returncode == 1
    assert repository.run("git", "apply", "drift.patch").returncode == 0
    done = repository.fusegen("check", "--patch", "drift.patch")
    assert done.returncode == 0 and (repository.root / "drift.patch").read_bytes() == b""


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["absent"], "error[FG505]: absent is not there"),
        (["absent.yaml"], "error[FG101]: cannot read the file"),
        (["generated"], "error[FG505]: generated has no specs"),
        (["--output", f"specs/{A}.yaml"], "error[FG501]"),
        (["--patch", "absent/drift.patch"], "error[FG502]: cannot write absent/drift.patch"),
        (["--format", "xml"], "Usage"),
        (["--fix"], "Usage"),
    ],
)
def test_wrong_usage(project, arguments: list[str], part: str) -> None:
    code, out, err = text(project.fusegen("check", *arguments))
    assert (code, out) == (2, "") and part in err


def test_without_a_directory_of_specs(tmp_path: Path, project) -> None:
    project.root = tmp_path
    code, out, err = text(project.fusegen("check"))
    assert (code, out) == (2, "") and "FG505" in err and "specs is not there" in err


def break_both(project) -> None:
    project.edit_spec(A, "op: relu", "op: rely")
    project.edit_spec(B, "targets: [sm_90]", "targets: [sm_1]")


@pytest.mark.parametrize("command", [["check"], ["build", "--no-compile", "specs"], ["plan", "specs"]])
def test_the_mistakes_in_all_specs_are_shown(project, command: list[str]) -> None:
    break_both(project)
    code, out, err = text(project.fusegen(*command))
    assert (code, out) == (2, "")
    assert f"specs/{A}.yaml:" in err and "FG203" in err and f"specs/{B}.yaml:" in err and "FG212" in err


def test_the_mistakes_in_all_specs_as_json_and_annotations(project) -> None:
    break_both(project)
    code, out, err = text(project.fusegen("check", "--format", "json"))
    assert code == 2 and [each["code"] for each in json.loads(out)["errors"]] == ["FG203", "FG212"] and "FG203" in err
    code, out, err = text(project.fusegen("check", "--format", "github"))
    assert code == 2 and [line[:13] for line in out.splitlines()] == ["::error file="] * 2


@pytest.mark.parametrize("command", [["check"], ["build", "--no-compile", "specs"]])
def test_two_specs_for_one_package(project, command: list[str]) -> None:
    (project.root / "specs" / f"{A}.yml").write_bytes(project.spec(A).read_bytes())
    code, _, err = text(project.fusegen(*command))
    assert code == 2 and f"specs/{A}.yml:" in err and f"specs/{A}.yaml" in err and "FG208" in err


@pytest.mark.parametrize("command", [["check"], ["build", "--no-compile", "specs"]])
def test_a_spec_in_a_file_of_another_name(project, command: list[str]) -> None:
    project.spec(A).rename(project.spec("other"))
    code, _, err = text(project.fusegen(*command))
    assert code == 2 and f"error[FG504]: the spec '{A}' is in the file 'other.yaml'" in err


def test_a_file_that_cannot_be_read(project, monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes = Path.read_bytes

    def refusing(path: Path) -> bytes:
        if path.name == "kernels.cu":
            raise PermissionError(13, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refusing)
    with pytest.raises(SpecError, match=f"FG507.*cannot read generated/{KERNELS}: Permission denied"):
        project.check()


# What it does without

SHY = "raise SystemExit(__name__ + ' was imported')\n"
# Of what fusegen depends on; the rest is what the workflow in examples/ci installs.
UNNEEDED = ("torch", "numpy", "ninja", "filelock")


@pytest.mark.parametrize("format_", ["text", "json", "github"])
def test_it_needs_no_torch_and_no_compiler(project, tmp_path: Path, format_: str) -> None:
    DRIFTS["spec_changed"][0](project)
    for name in UNNEEDED:
        (tmp_path / f"{name}.py").write_text(SHY)
    (tmp_path / "empty").mkdir()
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PATH": str(tmp_path / "empty")}
    command = [sys.executable, "-m", "fusegen", "check", "--format", format_]
    done = subprocess.run(command, cwd=project.root, env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"")
