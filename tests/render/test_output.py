"""Writing below an output directory: only what changed, each file in one step, never over foreign files."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from fusegen import __version__
from fusegen.errors import SpecError
from fusegen.render.files.manifest import MANIFEST, manifest_version, read_manifest
from fusegen.render.output import _refuse_edited, write_files
from tests.render.rendering import rendered

FILES = {"demo/kernels.cu": "// kernels\n", "support/launch.cuh": "// launch\n"}


def listing(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_writes_files_and_a_manifest(tmp_path: Path) -> None:
    assert write_files(FILES, tmp_path / "out" / "deep") == list(FILES)
    assert listing(tmp_path / "out" / "deep") == sorted([*FILES, MANIFEST]), "and no temporary file"
    assert set(read_manifest(tmp_path / "out" / "deep")) == set(FILES)
    mode = stat.S_IMODE((tmp_path / "out" / "deep" / "demo" / "kernels.cu").stat().st_mode)
    assert mode == 0o644


def test_writes_only_what_differs(tmp_path: Path) -> None:
    write_files(FILES, tmp_path)
    os.utime(tmp_path / "demo" / "kernels.cu", (1, 1))
    changed = FILES | {"support/launch.cuh": "// other\n"}
    assert write_files(FILES, tmp_path) == []
    assert write_files(changed, tmp_path) == ["support/launch.cuh"]
    assert (tmp_path / "demo" / "kernels.cu").stat().st_mtime == 1


def test_writes_what_was_removed(tmp_path: Path) -> None:
    write_files(FILES, tmp_path)
    (tmp_path / "support" / "launch.cuh").unlink()
    assert write_files(FILES, tmp_path) == ["support/launch.cuh"]


NEW = {path: f"{text}// new\n" for path, text in FILES.items()}


@pytest.mark.parametrize("files", [FILES, NEW])
def test_an_edit_by_hand_is_replaced_only_when_told_to(tmp_path: Path, files: dict[str, str]) -> None:
    write_files(FILES, tmp_path)
    (tmp_path / "demo" / "kernels.cu").write_text("edited")
    (tmp_path / "support" / "launch.cuh").unlink()
    before = {path: (tmp_path / path).read_bytes() for path in listing(tmp_path)}
    with pytest.raises(SpecError, match=r"FG508.*edited by hand: .*demo/kernels.cu \(`fusegen check`.*--overwrite"):
        write_files(files, tmp_path)
    assert {path: (tmp_path / path).read_bytes() for path in listing(tmp_path)} == before
    assert write_files(files, tmp_path, overwrite=True) == list(files)
    assert (tmp_path / "demo" / "kernels.cu").read_text() == files["demo/kernels.cu"]
    assert write_files(files, tmp_path) == []


@pytest.mark.parametrize(
    "data",
    [
        b"// kernels\r\n",  # git converted it
        b"// kernels\n// new\r\n",  # and again, of what is to be written
        b"<<<<<<< HEAD\n// kernels\n=======\n// other\n>>>>>>> other\n",
    ],
)
def test_what_git_left_is_no_edit(tmp_path: Path, data: bytes) -> None:
    """Nothing that `fusegen check` calls line endings or a conflict."""
    write_files(FILES, tmp_path)
    (tmp_path / "demo" / "kernels.cu").write_bytes(data)
    assert write_files(NEW, tmp_path) == list(NEW)


def test_the_side_that_a_merge_took_is_no_edit(tmp_path: Path) -> None:
    """Where the manifest has still both."""
    write_files(FILES, tmp_path)
    ours = (tmp_path / MANIFEST).read_text().splitlines(keepends=True)
    write_files(NEW, tmp_path)
    theirs = (tmp_path / MANIFEST).read_text().splitlines(keepends=True)
    place = next(number for number, line in enumerate(ours) if "demo/" in line)
    sides = ["<<<<<<< HEAD\n", ours[place], "=======\n", theirs[place], ">>>>>>> theirs\n"]
    (tmp_path / MANIFEST).write_text("".join(theirs[:place] + sides + theirs[place + 1 :]))
    for text in (FILES, NEW):
        (tmp_path / "demo" / "kernels.cu").write_text(text["demo/kernels.cu"])
        _refuse_edited({**FILES, "demo/kernels.cu": "// newest\n"}, tmp_path)
    (tmp_path / "demo" / "kernels.cu").write_text("edited")
    with pytest.raises(SpecError, match="FG508"):
        _refuse_edited({**FILES, "demo/kernels.cu": "// newest\n"}, tmp_path)


def test_an_edit_of_another_package_is_none_of_this_builds(tmp_path: Path) -> None:
    write_files(FILES | {"other/kernels.cu": "// other\n"}, tmp_path)
    (tmp_path / "other" / "kernels.cu").write_text("edited")
    assert write_files(NEW, tmp_path) == list(NEW)


def test_the_manifest_alone_has_the_version(tmp_path: Path) -> None:
    write_files(rendered(), tmp_path)
    assert f'"version": "{__version__}"' in (tmp_path / MANIFEST).read_text()
    assert manifest_version((tmp_path / MANIFEST).read_bytes()) == __version__
    assert not [path for path, text in rendered().items() if __version__ in text]


def test_other_packages_stay_listed_while_they_are_there(tmp_path: Path) -> None:
    write_files(FILES | {"other/kernels.cu": "// other\n"}, tmp_path)
    write_files(FILES, tmp_path)
    assert "other/kernels.cu" in read_manifest(tmp_path)
    (tmp_path / "other" / "kernels.cu").unlink()
    write_files(FILES, tmp_path)
    assert set(read_manifest(tmp_path)) == set(FILES)


def test_refuses_foreign_files_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "kernels.cu").write_text("mine")
    with pytest.raises(SpecError, match=r"FG501.*did not write: demo/kernels.cu"):
        write_files(FILES, tmp_path)
    assert listing(tmp_path) == ["demo/kernels.cu"]
    assert (tmp_path / "demo" / "kernels.cu").read_text() == "mine"


def test_takes_what_it_would_write_anyway_for_its_own(tmp_path: Path) -> None:
    """A lost manifest is written again."""
    write_files(FILES, tmp_path)
    (tmp_path / MANIFEST).unlink()
    assert write_files(FILES, tmp_path) == [] and set(read_manifest(tmp_path)) == set(FILES)
    (tmp_path / MANIFEST).unlink()
    (tmp_path / "demo" / "kernels.cu").write_text("mine")
    with pytest.raises(SpecError, match="FG501"):
        write_files(FILES, tmp_path)


def test_reads_both_sides_of_a_manifest_that_a_merge_left(tmp_path: Path) -> None:
    write_files(FILES | {"ours/x.cu": "// ours\n", "theirs/x.cu": "// theirs\n"}, tmp_path)
    lines = (tmp_path / MANIFEST).read_text().splitlines(keepends=True)
    for before, mark in (("theirs/", ">>>>>>> theirs\n"), ("theirs/", "=======\n"), ("ours/", "<<<<<<< ours\n")):
        index = next(number for number, line in enumerate(lines) if before in line)
        lines.insert(index + (mark[0] == ">"), mark)
    (tmp_path / MANIFEST).write_text("".join(lines))
    assert set(read_manifest(tmp_path)) == {*FILES, "ours/x.cu", "theirs/x.cu"}
    write_files(FILES, tmp_path)
    assert "<<<<" not in (tmp_path / MANIFEST).read_text()
    assert set(read_manifest(tmp_path)) == {*FILES, "ours/x.cu", "theirs/x.cu"}


@pytest.mark.parametrize("what", ["a file in the way", "a directory in the way"])
def test_says_what_cannot_be_written(tmp_path: Path, what: str) -> None:
    write_files(FILES, tmp_path)
    (tmp_path / "demo" / "kernels.cu").unlink()
    if what == "a file in the way":
        (tmp_path / "demo").rmdir()
        (tmp_path / "demo").touch()
    else:
        (tmp_path / "demo" / "kernels.cu").mkdir()
    with pytest.raises(SpecError, match="FG502.*cannot write"):
        write_files(FILES, tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))


NO_HASH = '{"format": 1, "files": {"demo/kernels.cu": "1234"}}'
NEWER = '{"format": 2, "files": {}}'


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}', "{", NO_HASH, NEWER])
def test_refuses_a_manifest_of_something_else(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(SpecError, match="FG501"):
        write_files(FILES, tmp_path)
    assert listing(tmp_path) == [MANIFEST] and (tmp_path / MANIFEST).read_text() == text


def test_an_interrupted_write_leaves_the_old_text_and_no_temporary(tmp_path: Path, monkeypatch) -> None:
    write_files(FILES, tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_files({"demo/kernels.cu": "// new\n"}, tmp_path)
    assert listing(tmp_path) == sorted([*FILES, MANIFEST])
    assert (tmp_path / "demo" / "kernels.cu").read_text() == FILES["demo/kernels.cu"]


def test_the_manifest_is_sorted_and_ends_in_a_newline(tmp_path: Path) -> None:
    write_files(dict(reversed(FILES.items())), tmp_path)
    text = (tmp_path / MANIFEST).read_text()
    assert list(json.loads(text)["files"]) == sorted(FILES) and text.endswith("}\n")


def test_what_a_killed_build_left_goes_with_the_next(tmp_path: Path) -> None:
    """In every directory of the packages, though nothing is to be written there."""
    files = FILES | {"support/kernels/row.cuh": "// row\n"}
    write_files(files, tmp_path)
    folders = {(tmp_path / path).parent for path in files} | {tmp_path}
    for folder in folders:
        (folder / ".fusegen-0123456789abcdef.tmp").write_text("half")
    assert len(folders) > 3 and write_files(files, tmp_path) == []
    assert not list(tmp_path.rglob("*.tmp"))
