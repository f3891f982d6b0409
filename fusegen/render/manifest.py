"""The manifest: which files below the output directory are fusegen's, and their digests when they were written.

It alone says which version of fusegen wrote it: an upgrade that changes nothing else touches one file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fusegen.errors import Diagnostic, SpecError
from fusegen.version import __version__

MANIFEST = "manifest.json"
_FORMAT = 1

_ENTRY = re.compile(r'"([^"\\]+)": "([0-9a-f]{64})"')
# No part is `.` or `..` or empty: whatever a manifest lists lies below its directory.
_PART = r"\.?[A-Za-z0-9_][A-Za-z0-9_.-]*"
_PATH = re.compile(rf"{_PART}(/{_PART})*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CONFLICT = re.compile(rb"^<{7} .*^={7}\r?$.*^>{7} ", re.MULTILINE | re.DOTALL)


def read_manifest(directory: Path) -> dict[str, str]:
    """Path -> SHA-256 of every file that fusegen wrote there; empty where there is no manifest. Raises SpecError."""
    return {path: sorted(digests)[-1] for path, digests in listed_digests(directory).items()}


def listed_digests(directory: Path) -> dict[str, frozenset[str]]:
    """As read_manifest, but with the digests of both sides where a merge left its markers in the manifest."""
    path = directory / MANIFEST
    if not path.is_file():
        return {}
    listed: dict[str, frozenset[str]] = {}
    try:
        for name, found in manifest_entries(path.read_bytes()):
            listed[name] = listed.get(name, frozenset()) | {found}
        return listed
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


def manifest_version(data: bytes) -> str | None:
    """The version of fusegen that wrote the manifest; None where it does not say, or a merge left two."""
    try:
        content = json.loads(data)
    except ValueError:
        return None
    version = content.get("version") if isinstance(content, dict) else None
    return version if isinstance(version, str) else None


def manifest_text(digests: Mapping[str, str]) -> str:
    files = dict(sorted(digests.items()))
    content = {"generator": "fusegen", "version": __version__, "format": _FORMAT, "files": files}
    return json.dumps(content, indent=2) + "\n"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def is_as_listed(data: bytes, listed: Collection[str]) -> bool:
    """Whether the manifest has the file's digest, whatever line endings git gave it."""
    return digest(data) in listed or digest(data.replace(b"\r\n", b"\n")) in listed


def has_conflict(data: bytes) -> bool:
    """Whether a merge left its markers in the text."""
    return _CONFLICT.search(data) is not None
