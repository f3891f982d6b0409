"""Unified diffs, as `git apply` and `patch -p1` take them. Bytes in, bytes out: what a file holds need not be text."""

from __future__ import annotations

import difflib
import hashlib
import re

# Each byte is one character, and comes back as the same byte.
_BYTES = "latin-1"
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_PLAIN = re.compile(rb"[\x20-\x7e]+")


def unified(path: str, old: bytes | None, new: bytes | None) -> bytes:
    """The patch of one file in git's form. path: from the root of the tree, with `/`. None: there is no such file."""
    before, after = _name("a", path), _name("b", path)
    lines = [f"diff --git {before} {after}\n"]
    if old is None:
        lines.append("new file mode 100644\n")
    if new is None:
        lines.append("deleted file mode 100644\n")
    # Where the hash is zero, patch knows that an empty file is to be made or removed, not just left empty.
    mode = " 100644" if old is not None and new is not None else ""
    lines.append(f"index {_object_name(old)}..{_object_name(new)}{mode}\n")
    hunks = difflib.unified_diff(_lines(old), _lines(new))
    for _ in range(2):
        next(hunks, None)  # its own header
    body = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in hunks]
    if body:
        # As git does: without the tab a space would end the name.
        end = "\t\n" if " " in path else "\n"
        lines.append(f"--- {before}{end}" if old is not None else "--- /dev/null\n")
        lines.append(f"+++ {after}{end}" if new is not None else "+++ /dev/null\n")
    return "".join([*lines, *body]).encode(_BYTES)


def first_difference(old: bytes | None, new: bytes | None) -> int:
    """The first line, from 1, at which the old file differs; its last one where only something is missing behind."""
    before, after = _lines(old), _lines(new)
    for number, (one, other) in enumerate(zip(before, after, strict=False), 1):
        if one != other:
            return number
    return max(1, min(len(before), len(after) + 1))


def _object_name(data: bytes | None) -> str:
    """git's name of the content, abbreviated."""
    if data is None:
        return "0" * 10
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()[:10]


def _lines(data: bytes | None) -> list[str]:
    return _LINE.findall((data or b"").decode(_BYTES))


def _name(side: str, path: str) -> str:
    """A name in a header; quoted as git does it where it would not be read as it stands."""
    raw = f"{side}/{path}".encode("utf-8", "surrogateescape")
    if _PLAIN.fullmatch(raw) and not re.search(rb'["\\]', raw):
        return raw.decode("ascii")
    return '"' + "".join(_quoted(byte) for byte in raw) + '"'


def _quoted(byte: int) -> str:
    if byte in b'"\\':
        return f"\\{chr(byte)}"
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
