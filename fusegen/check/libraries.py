"""Compiled libraries beside the rendered sources: those that were compiled from other sources.

A library holds the marker that its binding defines as plain bytes, so that nothing has to be loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from fusegen.check.disk import reading
from fusegen.check.findings import Finding
from fusegen.paths import EXTENSION
from fusegen.render.package import Files

_MARKER = re.compile(rb"fusegen sources (\w+) ([0-9a-f]+)")


def stale_libraries(rendered: Files, directory: Path, specs: Mapping[str, str]) -> list[Finding]:
    """A finding for each library that is there and is not of what is rendered; one that is absent is none.

    specs: for each package its spec file. Raises SpecError.
    """
    findings = []
    for name, source in specs.items():
        path = f"{name}/{EXTENSION}.so"
        if not (directory / path).is_file():
            continue
        with reading(directory):
            found = _markers((directory / path).read_bytes())
        if not _markers(rendered[f"{name}/bindings.cpp"].encode()) <= found:
            meaning = (
                f"It was compiled from other sources than {source} gives: importing the package raises an error until "
                "it is compiled again."
            )
            findings.append(Finding(path, "library", meaning, None, None, "compile"))
    return findings


def _markers(data: bytes) -> set[bytes]:
    return {found.group() for found in _MARKER.finditer(data)}
