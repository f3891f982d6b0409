"""Lines of the user's source: of a node of the trace, of an exception, and refusals that name them."""

from __future__ import annotations

import linecache
import os
import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

from fusegen import paths
from fusegen.errors import Diagnostic, Location, SpecError

_FRAME = re.compile(r'File "([^"\n]+)", line ([0-9]+)')
_NOT_THEIRS = (str(Path(torch.__file__).parent), str(Path(paths.__file__).parent))


@dataclass(frozen=True)
class SourceLine:
    """A line of a file."""

    file: str
    line: int

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).rstrip("\n")

    @property
    def shown_file(self) -> str:
        """As compilers print it: relative, if it is below the current directory."""
        relative = os.path.relpath(self.file)
        return self.file if relative.startswith("..") else Path(relative).as_posix()

    def location(self) -> Location:
        text = self.source
        return Location(self.shown_file, self.line, len(text) - len(text.lstrip()) + 1)


def of_trace(stack: str | None) -> SourceLine | None:
    """The innermost line that is not PyTorch's, of a node's `stack_trace`."""
    found = [SourceLine(file, int(line)) for file, line in _FRAME.findall(stack or "")]
    return next((place for place in reversed(found) if is_theirs(place.file)), None)


def of_error(error: BaseException) -> SourceLine | None:
    """The innermost line of a traceback of an exception that is neither PyTorch's nor this package's; None without
    one."""
    frames = _frames(error.__traceback__)
    return next((place for place in reversed(frames) if is_theirs(place.file)), None)


def refusal(code: str, message: str, place: SourceLine | None = None, hint: str | None = None) -> SpecError:
    """The error that refuses what is at a place."""
    if place is None:
        return SpecError([Diagnostic(code, message, hint=hint)])
    return SpecError([Diagnostic(code, message, place.location(), hint, place.source or None)])


def _frames(trace: TracebackType | None) -> list[SourceLine]:
    return [SourceLine(frame.filename, frame.lineno or 1) for frame in traceback.extract_tb(trace)]


def is_theirs(file: str) -> bool:
    """Whether a file is the user's, neither PyTorch's nor this package's."""
    return not file.startswith((*_NOT_THEIRS, "<"))
