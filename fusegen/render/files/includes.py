"""What C++ and CUDA sources include in quotes, of files in memory or on disk."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

QUOTED = re.compile(r'^[ \t]*#include "([^"]+)"', re.MULTILINE)


def include_path(path: str, name: str) -> str:
    """The path of what the file at `path` includes by this name: it is relative to the file, as for a compiler."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))


def included(path: str, text: str) -> Iterator[str]:
    """The paths of the files that a text at this path includes itself."""
    for name in QUOTED.findall(text):
        yield include_path(path, name)


def included_files(source: Path, directory: Path) -> list[str]:
    """The paths below a directory of the source and of all that it includes there, sorted. Raises OSError where there
    is no source."""
    root = source.relative_to(directory).as_posix()
    found, waiting = set[str](), [root]
    while waiting:
        path = waiting.pop()
        if path not in found and (path == root or (directory / path).is_file()):
            found.add(path)
            waiting += included(path, (directory / path).read_text(encoding="utf-8", errors="surrogateescape"))
    return sorted(found)
