"""The last touch on emitted C++: no line over 100 columns, no run of blank lines."""

from __future__ import annotations

import re
import textwrap

WIDTH = 100


def tidy(text: str) -> str:
    """The same code with long lines broken and blank lines collapsed."""
    lines = [piece for line in text.splitlines() for piece in _broken(line.rstrip())]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
    text = re.sub(r"\{\n\n", "{\n", text)
    return text.rstrip("\n") + "\n"


def _broken(line: str, further: int = 4) -> list[str]:
    """further: how much deeper the rest of the line is."""
    if len(line) <= WIDTH or line.lstrip().startswith("#"):
        return [line]
    indent = len(line) - len(line.lstrip())
    if line.lstrip().startswith("//"):
        return _comment(line)
    if "  // " in line:  # a comment after the code goes before it
        code, said = line.split("  // ", 1)
        return [*_broken(f"{' ' * indent}// {said}"), *_broken(code.rstrip(), further)]
    at = _break_point(line)
    if at is None:
        return [line]
    rest = " " * (indent + further) + line[at:].lstrip()
    return [line[:at].rstrip(), *_broken(rest, 0)]


def _comment(line: str) -> list[str]:
    """Further lines of a comment begin as the first one does."""
    prefix = line[: len(line) - len(line.lstrip(" /"))]
    return textwrap.wrap(line, WIDTH, subsequent_indent=prefix, break_long_words=False, break_on_hyphens=False)


def _break_point(line: str) -> int | None:
    """Where to break: as far out of brackets as possible, there as far right as fits."""
    start = len(line) - len(line.lstrip()) + 8
    best: tuple[int, int] | None = None
    depth = 0
    for at, char in enumerate(line[:WIDTH]):
        if char in "([{" or (char == "<" and _of_template(line[:at])):
            depth += 1
        elif char in ")]}" or (char == ">" and _of_template(line[:at])):
            depth -= 1
        if at < start:
            continue
        place = _candidate(line, at)
        if place is not None and place <= WIDTH and (best is None or depth <= best[0]):
            best = (depth, place)
    return best[1] if best else None


def _of_template(before: str) -> bool:
    """Whether `<` or `>` behind this text is a bracket: comparisons and shifts have a space before them."""
    return not before.rstrip("<>").endswith((" ", "-"))


def _candidate(line: str, at: int) -> int | None:
    """The break that the character at `at` allows: after a comma, a semicolon or an assignment; before an operator."""
    if line.startswith((", ", "; "), at):
        return at + 1
    if line.startswith(" = ", at):
        return at + 2
    if line.startswith((" && ", " ? ", " : ", " + ", " - "), at):
        return at + 1
    return None
