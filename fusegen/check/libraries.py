"""Compiled libraries beside the rendered sources: those that were compiled from other sources, or are damaged.

A library has `fusegen sources <name> <digest>` as plain bytes (`support/package_info.h`), so that nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fusegen.check.disk import reading
from fusegen.check.findings import Finding
from fusegen.files import parse_json
from fusegen.paths import EXTENSION
from fusegen.render.files.manifest import digest
from fusegen.render.files.support import library_digests
from fusegen.render.package import Files


def stale_libraries(rendered: Files, directory: Path, specs: Mapping[str, str]) -> list[Finding]:
    """A finding for each library that is there and is not of what is rendered, or not as it was linked; one that is
    absent is none.

    specs: for each package its spec file. Raises SpecError.
    """
    findings, digests = [], library_digests(rendered)
    for name, source in specs.items():
        path = f"{name}/{EXTENSION}.so"
        if not (directory / path).is_file():
            continue
        with reading(directory):
            data = (directory / path).read_bytes()
            linked = _is_as_linked(data, directory / name / f"{EXTENSION}.key")
        if f"fusegen sources {name} {digests[name]}\0".encode() not in data:
            meaning = (
                f"It was compiled from other sources than {source} gives: importing the package raises an error until "
                "it is compiled again."
            )
        elif not linked:
            meaning = "It is not what was linked here: it was damaged, or put there by something else."
        else:
            continue
        findings.append(Finding(path, "library", meaning, None, None, "compile"))
    return findings


def _is_as_linked(data: bytes, key: Path) -> bool:
    """Whether a library's content is what its key file says. One without a key file was built elsewhere."""
    if not key.is_file():
        return True
    try:
        content = parse_json(key.read_bytes())
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("output") == digest(data)
