"""Files from outside, and files that are written in one step."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fusegen import files
from fusegen.build.key import why_changed
from fusegen.check.plugins import told
from fusegen.errors import Diagnostic, Location, SpecError
from fusegen.files import parse_json, refuse_output, remove_left_over, replacing, write, write_output
from fusegen.render.files.manifest import has_conflict, manifest_version, read_manifest

MALFORMED = {
    "nested": b"[" * 200_000,
    "mappings": b'{"a":' * 200_000,
    "empty": b"",
    "UTF-16": '{"files": {}}'.encode("utf-16"),
    "no UTF-8": b'{"files": "\xff"}',
    "half a surrogate pair": b'{"files": {}, "format": 1, "version": "\\ud800"}',
    "digits": b"1" * 5_000,
    "NaN": b'{"format": NaN}',
    "cut": b'{"format": 1, "files": {',
    "two": b"{} {}",
}
MISSHAPEN = {
    "list": b"[]",
    "number": b"1",
    "null": b"null",
    "lists": b'{"format": 1, "files": [["a", 1]], "parts": [[1, 2], ["a", 3]], "output": null, "chain": 1}',
    "wrong values": b'{"format": 1, "files": {"a": {"b": 1}}, "parts": {"a": [1]}, "output": {}, "chain": [1]}',
    "wrong keys": b'{"format": 1, "files": {"../a": "b"}, "parts": null, "output": 1, "chain": [{"op": []}]}',
    "huge": b'{"format": 1e308, "files": {}, "parts": {"a": 123456789012345678901234567890}, "output": ""}',
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_json_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="it is (not JSON|nested too deeply)"):
        parse_json(data)


@pytest.mark.parametrize("data", [*MALFORMED.values(), *MISSHAPEN.values()], ids=[*MALFORMED, *MISSHAPEN])
def test_files_from_outside(data: bytes, tmp_path: Path) -> None:
    """A manifest is refused by its name; a key file is a stale one; a plan that is nobody's says nothing of plugins."""
    file = tmp_path / "manifest.json"
    file.write_bytes(data)
    with pytest.raises(SpecError, match=r"FG501.*manifest\.json is not a manifest of fusegen"):
        read_manifest(tmp_path)
    assert manifest_version(data) is None
    output, key = tmp_path / "_C.so", tmp_path / "_C.key"
    key.write_bytes(data)
    assert why_changed(output, key, {"source": "a"}) is not None
    output.write_bytes(b"library")
    assert why_changed(output, key, {"source": "a"}) is not None
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "plan.json").write_bytes(data)
    unknown = Diagnostic("FG203", "unknown op 'mine'", Location("specs/demo.yaml", 1, 1))
    assert told(SpecError([unknown]), tmp_path).diagnostics == (unknown,)


def test_markers_of_a_merge_are_looked_for_once() -> None:
    """In a text of many that never end, too."""
    assert has_conflict(b"a\n<<<<<<< x\nb\n=======\r\nc\n>>>>>>> y\n")
    assert not has_conflict(b"a\n>>>>>>> y\nb\n=======\nc\n<<<<<<< x\n")
    assert not has_conflict(b"<<<<<<< x\n=======\n" * 100_000)


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("former")
    with pytest.raises(RuntimeError), replacing(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "former" and os.listdir(tmp_path) == ["file"]


def test_the_content_is_on_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss of power between the two would leave an empty file."""
    said: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (said.append("content"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda *paths: (said.append("name"), replace(*paths))[1])
    write(tmp_path / "file", "text")
    assert said == ["content", "name"] and (tmp_path / "file").read_text() == "text"


def test_access_stays_as_it_was(tmp_path: Path) -> None:
    former = os.umask(0o027)
    try:
        write(tmp_path / "file", "text")
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
        (tmp_path / "file").chmod(0o604)
        write(tmp_path / "file", "other")
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o604
    finally:
        os.umask(former)


def test_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "file")
    write(tmp_path / "link", "text")
    write(tmp_path / "link", "other")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "elsewhere" / "file").read_text() == "other"


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """Such as /dev/null and what a shell has for `>(command)`."""
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE)
    write_output(tmp_path / "pipe", "text")
    assert reader.communicate(timeout=60)[0] == b"text" and (tmp_path / "pipe").is_fifo()
    (tmp_path / "directory").mkdir()
    with pytest.raises(SpecError, match="FG502.*directory: Is a directory"):
        write_output(tmp_path / "directory", "text", overwrite=True)


@pytest.mark.parametrize("how", ["itself", "dots", "link", "hard link"])
def test_an_input_is_never_an_output(how: str, tmp_path: Path) -> None:
    given, output = tmp_path / "a.yaml", tmp_path / "b.yaml"
    given.write_text("mine")
    if how == "link":
        output.symlink_to(given)
    elif how == "hard link":
        os.link(given, output)
    else:
        output = given if how == "itself" else tmp_path / ".." / tmp_path.name / "a.yaml"
    with pytest.raises(SpecError, match="FG502.*is read by this command"):
        write_output(output, "text", inputs=[tmp_path / "absent", given], overwrite=True)
    assert given.read_text() == "mine"


def test_a_file_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    refuse_output(path)
    write_output(path, "text")
    with pytest.raises(SpecError, match="FG502.*file is there already.*--overwrite"):
        write_output(path, "other")
    assert path.read_text() == "text"
    write_output(path, b"other", overwrite=True)
    assert path.read_text() == "other"


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom fusegen.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as part:\n    part.write_text('half')\n    os.kill(os.getpid(), 9)\n"
    )
    root = Path(files.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "file"], env=environment)
    (left,) = tmp_path.iterdir()
    assert done.returncode == -9 and left.read_text() == "half"
    others = [tmp_path / name for name in (".abc.tmp", "fusegen-1.tmp", ".fusegen-1")]
    for each in others:
        each.touch()
    with replacing(tmp_path / "other") as part:
        assert not left.exists() and part.exists()
    remove_left_over(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / "other"])


def test_what_is_being_written_stays(tmp_path: Path) -> None:
    """Who removes what is left over has the directory's lock, which a writer has."""
    handle = os.open(tmp_path, os.O_RDONLY)
    with replacing(tmp_path / "file") as part, pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not part.exists()
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
