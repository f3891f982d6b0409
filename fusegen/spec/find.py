"""Which spec files the arguments of a command mean."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fusegen.errors import Diagnostic, SpecError

SUFFIXES = (".yaml", ".yml")


def spec_files(paths: Iterable[Path]) -> list[Path]:
    """Files as they are, and of a directory every spec directly in it, by name; each file once. Raises SpecError."""
    found: dict[str, Path] = {}
    problems = []
    for path in paths:
        files = _in_directory(path) if path.is_dir() else [path]
        if not files or (not path.exists() and path.suffix not in SUFFIXES):
            what = "has no specs (*.yaml, *.yml)" if path.is_dir() else "is not there"
            hint = "name the spec files, or the directory that holds them"
            problems.append(Diagnostic("FG505", f"{path.as_posix()} {what}", hint=hint))
        # Not resolved: a link is a file of its own, whose name has to fit.
        found.update({os.path.abspath(file): file for file in files if os.path.abspath(file) not in found})
    if problems:
        raise SpecError(problems)
    return list(found.values())


def _in_directory(directory: Path) -> list[Path]:
    """Without hidden files, which editors leave."""
    names = sorted(name for name in os.listdir(directory) if name.endswith(SUFFIXES) and not name.startswith("."))
    return [directory / name for name in names if (directory / name).is_file()]
