"""`fusegen build --prune` removes what the manifest lists and nothing renders any more, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.render.manifest import digest, manifest_text, read_manifest
from fusegen.render.output import orphans, write_files
from tests.check.drifts import A, B

FILES = {"demo/kernels.cu": "// kernels\n"}
OLD = {"old/kernels.cu": "// old\n", "old/plan.json": "{}\n", "demo/old.cuh": "// old\n"}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    write_files(FILES | OLD, tmp_path)
    return tmp_path


def test_what_is_not_rendered_any_more_goes(output: Path) -> None:
    assert sorted(orphans(FILES, output)) == sorted(OLD)
    write_files(FILES, output, remove=orphans(FILES, output))
    assert sorted(path.name for path in output.iterdir()) == ["demo", "manifest.json"]
    assert list(read_manifest(output)) == list(FILES) and not (output / "demo" / "old.cuh").exists()


def test_without_being_told_a_build_removes_nothing(output: Path) -> None:
    write_files(FILES, output)
    assert all((output / path).is_file() for path in OLD) and set(OLD) < set(read_manifest(output))


def test_what_somebody_edited_stays_and_nothing_is_removed(output: Path) -> None:
    (output / "old" / "plan.json").write_text("{ }\n")
    with pytest.raises(SpecError, match=r"FG506.*old/plan.json"):
        orphans(FILES, output)


def test_what_the_manifest_does_not_list_stays(output: Path) -> None:
    for path in ("old/notes.txt", "demo/notes.txt", "old/_C.so", "README.md"):
        (output / path).write_text("mine")
    write_files(FILES, output, remove=orphans(FILES, output))
    left = {path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file()}
    assert left == {*FILES, "manifest.json", "old/notes.txt", "demo/notes.txt", "old/_C.so", "README.md"}


def test_a_link_out_of_the_directory_is_not_followed(output: Path, tmp_path_factory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "kernels.cu").write_text(OLD["old/kernels.cu"])
    (output / "old" / "kernels.cu").unlink()
    (output / "old" / "plan.json").unlink()
    (output / "old").rmdir()
    os.symlink(outside, output / "old")
    with pytest.raises(SpecError, match=r"FG506.*old/kernels.cu"):
        orphans(FILES, output)


@pytest.mark.parametrize("path", ["../victim", "/etc/victim", "demo/../../victim", "..", "demo//x", "C:x", "a\\..\\b"])
def test_a_manifest_that_lists_something_outside_is_refused(output: Path, path: str) -> None:
    (output.parent / "victim").write_text("")
    (output / "manifest.json").write_text(manifest_text({path: digest(b"")}))
    with pytest.raises(SpecError, match="FG501.*does not write"):
        orphans(FILES, output)


def test_the_command(project) -> None:
    project.spec(B).unlink()
    done = project.fusegen("build", "--no-compile", "--prune", "specs")
    assert done.returncode == 0, done.stderr
    assert f"removed generated/{B}/kernels.cu" in done.stderr.decode()
    assert not (project.generated / B).exists() and project.check().ok


def test_the_command_needs_a_directory(project) -> None:
    """With a few files, every package of the others would be left over."""
    before = project.contents()
    done = project.fusegen("build", "--no-compile", "--prune", f"specs/{A}.yaml")
    assert done.returncode == 2 and b"--prune" in done.stderr and b"directory" in done.stderr
    assert project.contents() == before


@pytest.mark.parametrize("prune", [(), ("--prune",)])
def test_an_edit_by_hand(project, prune: tuple[str, ...]) -> None:
    """Refused with and without, and nothing is removed either."""
    project.spec(B).unlink()
    with (project.generated / A / "kernels.cu").open("a") as file:
        file.write("// by hand\n")
    before = project.contents()
    done = project.fusegen("build", "--no-compile", *prune, "specs")
    assert done.returncode == 2 and f"edited by hand: generated/{A}/kernels.cu" in done.stderr.decode()
    assert "`fusegen build --overwrite`" in done.stderr.decode() and project.contents() == before
    done = project.fusegen("build", "--no-compile", *prune, "--overwrite", "specs")
    assert done.returncode == 0, done.stderr
    assert not project.kinds(f"specs/{A}.yaml") and (project.generated / B).exists() == (not prune)


def test_the_command_writes_nothing_where_it_refuses(project) -> None:
    project.spec(B).unlink()
    project.edit_spec(A, "about: ", "about: Now a ")
    with (project.generated / B / "kernels.cu").open("a") as file:
        file.write("// by hand\n")
    before = project.contents()
    done = project.fusegen("build", "--no-compile", "--prune", "specs")
    assert done.returncode == 2 and f"generated/{B}/kernels.cu" in done.stderr.decode()
    assert project.contents() == before
