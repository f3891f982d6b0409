"""The manifest: which files below the output directory are fusegen's, and what they held when they were written."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from fusegen.errors import Diagnostic, SpecError

MANIFEST = "manifest.json"
_FORMAT = 1

_ENTRY = re.compile(r'"([^"\\]+)": "([0-9a-f]{64})"')
# No part is `.` or `..` or empty: whatever a manifest lists lies below its directory.
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CONFLICT = re.compile(rb"^<{7} .*^={7}\r?$.*^>{7} ", re.MULTILINE | re.DOTALL)


def read_manifest(directory: Path) -> dict[str, str]:
    """Path -> SHA-256 of every file that fusegen wrote there; empty where there is no manifest. Raises SpecError."""
    path = directory / MANIFEST
    if not path.is_file():
        return {}
    try:
        return dict(manifest_entries(path.read_bytes()))
    except ValueError as error:
        message = f"{path} is not a manifest of fusegen: {error}"
        raise SpecError([Diagnostic("FG501", message, hint="`fusegen check` tells how to repair it")]) from None


def manifest_entries(data: bytes) -> list[tuple[str, str]]:
    """The paths and their SHA-256; with merge conflicts those of both sides. Raises ValueError with the reason."""
    entries: Iterable[tuple[object, object]]
    if has_conflict(data):
        entries = _ENTRY.findall(data.decode("utf-8", "replace"))
    else:
        try:
            content = json.loads(data)
        except ValueError:
            raise ValueError("it is not JSON") from None
        files = content.get("files") if isinstance(content, dict) else None
        if not isinstance(files, dict):
            raise ValueError("it lists no files")
        if content.get("format") != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT}, the one that this fusegen knows")
        entries = files.items()
    result = []
    for path, digest in entries:
        if not isinstance(path, str) or not _PATH.fullmatch(path):
            raise ValueError("it lists a path that fusegen does not write")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError("it lists a hash that is none")
        result.append((path, digest))
    return result


def manifest_text(digests: Mapping[str, str]) -> str:
    content = {"generator": "fusegen", "format": _FORMAT, "files": dict(sorted(digests.items()))}
    return json.dumps(content, indent=2) + "\n"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def has_conflict(data: bytes) -> bool:
    """Whether a merge left its markers in the text."""
    return _CONFLICT.search(data) is not None
