"""Writing rendered files below an output directory, and the manifest that says which files are fusegen's."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from fusegen.errors import Diagnostic, SpecError
from fusegen.render.package import Files

MANIFEST = "manifest.json"


def write_files(files: Files, directory: Path) -> list[str]:
    """Writes what differs and returns those paths. Files of packages that are not in `files` stay as they are.

    Raises SpecError where the directory holds other people's files under the same names.
    """
    directory.mkdir(parents=True, exist_ok=True)
    known = read_manifest(directory)
    _refuse_foreign(files, directory, known)
    changed = [path for path, text in files.items() if _write(directory / path, text)]
    merged = {**{path: digest for path, digest in known.items() if (directory / path).exists()}, **_digests(files)}
    _write(directory / MANIFEST, manifest_text(merged))
    return changed


def read_manifest(directory: Path) -> dict[str, str]:
    """Path -> SHA-256 of every file that fusegen wrote there; empty where there is no manifest."""
    path = directory / MANIFEST
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["files"])
    except (ValueError, KeyError, TypeError):
        raise SpecError([Diagnostic("FG501", f"{path} is not a manifest of fusegen")]) from None


def manifest_text(digests: dict[str, str]) -> str:
    return json.dumps({"generator": "fusegen", "format": 1, "files": dict(sorted(digests.items()))}, indent=2) + "\n"


def _digests(files: Files) -> dict[str, str]:
    return {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}


def _refuse_foreign(files: Files, directory: Path, known: dict[str, str]) -> None:
    foreign = [path for path in files if path not in known and (directory / path).exists()]
    if foreign:
        found = ", ".join(foreign[:3])
        message = f"{directory} has files that fusegen did not write: {found}"
        raise SpecError([Diagnostic("FG501", message, hint="remove them or choose another --output")])


def _write(path: Path, text: str) -> bool:
    """Replaces the file in one step, so that an interrupted run leaves the old or the new text."""
    data = text.encode("utf-8")
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True
