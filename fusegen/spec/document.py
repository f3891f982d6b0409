"""A YAML document as plain data, with the place of every key and value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fusegen.errors import Diagnostic, Location

# How a value is reached from the top: ("chain", 2, "eps").
DocumentPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """Plain data (dict, list, str, int, float, bool, None) and where each piece of it was written."""

    file: str
    data: dict[str, Any]
    lines: tuple[str, ...] = field(repr=False)
    values: Mapping[DocumentPath, Location] = field(repr=False)
    keys: Mapping[DocumentPath, Location] = field(repr=False)
    # Mistakes that left the structure readable; see read_yaml(lenient=True).
    problems: tuple[Diagnostic, ...] = ()

    def location(self, path: DocumentPath) -> Location:
        """Where the value at `path` begins; for a path that is not there, its nearest parent."""
        for end in range(len(path), -1, -1):
            found = self.values.get(path[:end])
            if found is not None:
                return found
        return Location(self.file, 1, 1)

    def key_location(self, path: DocumentPath) -> Location:
        """Where the last key of `path` is written; for a list element or a missing key, as location()."""
        return self.keys.get(path) or self.location(path)

    def has(self, path: DocumentPath) -> bool:
        """Whether a value was written at exactly this path."""
        return path in self.values

    def source(self, location: Location) -> str | None:
        """The text of the line, or None behind the end of the file."""
        index = location.line - 1
        return self.lines[index] if 0 <= index < len(self.lines) else None

    def diagnostic(
        self, code: str, message: str, path: DocumentPath, *, key: bool = False, hint: str | None = None
    ) -> Diagnostic:
        """A Diagnostic at the value of `path`, or at its key with `key=True`, with its source line."""
        location = self.key_location(path) if key else self.location(path)
        return Diagnostic(code, message, location, hint, self.source(location))
