"""The last touch on emitted C++: no line over 100 columns, no run of blank lines."""

from __future__ import annotations

import re
import textwrap

WIDTH = 100
_BREAKS = (" && ", " ? ", " : ", ", ", " = ", " + ", "(")


def tidy(text: str) -> str:
    """The same code with long lines broken and blank lines collapsed."""
    lines = [piece for line in text.splitlines() for piece in _broken(line.rstrip())]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    text = re.sub(r"\{\n\n", "{\n", text)
    return text.rstrip("\n") + "\n"


def _broken(line: str) -> list[str]:
    if len(line) <= WIDTH or line.lstrip().startswith("#"):
        return [line]
    if line.lstrip().startswith("//"):
        return _comment(line)
    at = _break_point(line)
    if at is None:
        return [line]
    indent = len(line) - len(line.lstrip())
    rest = " " * (indent + 4) + line[at:].lstrip()
    return [line[:at].rstrip(), *_broken(rest)]


def _comment(line: str) -> list[str]:
    """Further lines of a comment start below its text."""
    prefix = line[: len(line) - len(line.lstrip(" /"))]
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=prefix + "    ", break_long_words=False, break_on_hyphens=False
    )


def _break_point(line: str) -> int | None:
    """Where to break: the last place of the most outward kind that leaves the first part short enough."""
    start = len(line) - len(line.lstrip()) + 8
    for mark in _BREAKS:
        at = line.rfind(mark, start, WIDTH - len(mark) + 1)
        if at < 0:
            continue
        return at + len(mark) if mark in (", ", " = ", "(") else at + 1
    return None
