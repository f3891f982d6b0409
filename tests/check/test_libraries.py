"""A compiled library that is not of the sources beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.build.key import key_text
from fusegen.check.report import formatted
from fusegen.check.run import write_patch
from fusegen.render.files.manifest import MANIFEST, listed_sources
from tests.check.drifts import DRIFTS, A, B

LIBRARY = f"{A}/_C.so"


def compile_(project, name: str = A) -> None:
    """As a build leaves it: the marker, with what the manifest has, among other bytes."""
    digest = listed_sources((project.generated / MANIFEST).read_bytes())[name]
    marker = f"fusegen sources {name} {digest}\0".encode()
    (project.generated / name / "_C.so").write_bytes(b"\x7fELF\0\xff" + marker + b"\xff")


def test_of_these_sources(project) -> None:
    compile_(project)
    assert project.kinds() == {} and project.kinds(f"specs/{A}.yaml") == {}


def test_of_other_sources(project) -> None:
    """A spec was changed and rendered, not compiled."""
    compile_(project)
    compile_(project, B)
    project.edit_spec(A, "op: relu", "op: silu")
    project.fusegen("build", "--no-compile", "specs")
    assert project.kinds() == {LIBRARY: "library"} == project.kinds(f"specs/{A}.yaml")
    assert f"other sources than specs/{A}.yaml gives" in project.meaning(LIBRARY)
    report = project.check()
    assert report.repair == "fusegen build specs" and report.patch() == b""
    lines = formatted(report, "text").splitlines()
    assert lines[0] == f"generated/{LIBRARY}: stale library" and lines[2] == "" and lines[-1] == "  fusegen build specs"
    assert "title=generated file%3A stale library::" in formatted(report, "github")
    assert '"diff": ""' in formatted(report, "json")
    compile_(project)
    assert project.kinds() == {}


@pytest.mark.parametrize("content", [b"", b"\x7fELF\0", b"fusegen sources other 0123456789abcdef"])
def test_of_nobody_knows_what(project, content: bytes) -> None:
    (project.generated / LIBRARY).write_bytes(content)
    assert project.kinds() == {LIBRARY: "library"}


@pytest.mark.parametrize("damage", ["library", "key", "brackets", "another"])
def test_damaged_since_it_was_linked(project, damage: str) -> None:
    compile_(project)
    library, key = project.generated / LIBRARY, project.generated / A / "_C.key"
    key.write_text(key_text({}, library))
    assert project.kinds() == {}
    if damage == "library":
        library.write_bytes(library.read_bytes() + b"\0")
    else:
        key.write_text({"key": "", "brackets": "[" * 200_000, "another": "[]"}[damage])
    assert project.kinds() == {LIBRARY: "library"} and "not what was linked here" in project.meaning(LIBRARY)
    assert project.check().repair == "fusegen build specs"


def test_of_what_is_committed_and_stale(project) -> None:
    """Rendering it again makes the library stale: the one command does both."""
    compile_(project)
    DRIFTS["spec_changed"][0](project)
    assert project.kinds()[LIBRARY] == "library" and project.check().repair == "fusegen build specs"


def test_a_patch_leaves_it_out(repository, tmp_path: Path) -> None:
    test_of_what_is_committed_and_stale(repository)
    write_patch(repository.check(), tmp_path / "drift.patch")
    assert repository.run("git", "apply", str(tmp_path / "drift.patch")).returncode == 0
    assert repository.kinds() == {LIBRARY: "library"}


def test_it_is_never_in_the_manifest(project) -> None:
    compile_(project)
    assert project.fusegen("build", "--no-compile", "--prune", "specs").returncode == 0
    assert "_C" not in (project.generated / "manifest.json").read_text() and project.kinds() == {}
