"""Patches of single files: whatever bytes they hold, git makes the new file of the old one."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from fusegen.check.diff import first_difference, unified

LINES = [b"a\n", b"b\n", b"\n", b"c\r\n", b"\x0c\n", b"\xff\0\n", b"-- x\n", b"+++ b/x\n", b"@@ -1 +1 @@\n", b"\\ No\n"]


def contents(generator: random.Random) -> bytes | None:
    lines = generator.choices(LINES, k=generator.choice([0, 1, 2, 8, 30]))
    data = b"".join(lines)
    return generator.choice([data, data, data[:-1], None])


def test_git_makes_the_new_file_of_the_old_one(tmp_path: Path) -> None:
    generator = random.Random(0)
    pairs = {}
    for number in range(300):
        old, new = contents(generator), contents(generator)
        if old != new:
            pairs[f"dir {number % 3}/{number}é\n.txt"] = (old, new)
    assert len(pairs) > 200
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    for path, (old, _) in pairs.items():
        if old is not None:
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(old)
    patch = b"".join(unified(path, old, new) for path, (old, new) in pairs.items())
    done = subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, capture_output=True)
    assert done.returncode == 0, done.stderr
    for path, (_, new) in pairs.items():
        assert ((tmp_path / path).read_bytes() if (tmp_path / path).exists() else None) == new, path


def test_it_is_what_git_writes(tmp_path: Path) -> None:
    old, new = b"a\nb\nc", b"a\nB\nc\n"
    for side, data in (("a", old), ("b", new)):
        (tmp_path / side / "x").mkdir(parents=True)
        (tmp_path / side / "x" / "y.cu").write_bytes(data)
    command = ["git", "diff", "--no-index", "--abbrev=10", "--no-prefix", "a/x/y.cu", "b/x/y.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode == 1 and unified("x/y.cu", old, new) == done.stdout


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (b"a\nb\n", b"a\nc\n", 2),
        (b"x", b"y", 1),
        (b"a\nb\n", b"a\n", 2),  # the line that is too much
        (b"a\n", b"a\nb\n", 1),  # behind the last one
        (b"a\nb", b"a\nb\n", 2),
        (b"a\r\n", b"a\n", 1),
        (None, b"a\n", 1),
        (b"a\n", None, 1),
        (b"", b"a\n", 1),
    ],
)
def test_first_difference(old: bytes | None, new: bytes | None, line: int) -> None:
    assert first_difference(old, new) == line
