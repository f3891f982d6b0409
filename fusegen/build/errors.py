"""The error of a build: a tool that is missing, or one that failed."""

from __future__ import annotations

from collections.abc import Sequence

from fusegen.errors import FusegenError


class BuildError(FusegenError):
    """A generated package could not be compiled. The previous `_C.so`, if any, is untouched."""

    code = "FG503"

    def __init__(
        self, message: str, *, hint: str | None = None, command: str | None = None, output: str | None = None
    ) -> None:
        self.message = message
        self.hint = hint
        self.command = command
        self.output = output
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message if self.hint is None else f"{self.message} ({self.hint})"]
        if self.command:
            lines.append(f"command: {self.command}")
        if self.output:
            lines.append(self.output.rstrip())
        return "\n".join(lines)


def listing(items: Sequence[str]) -> str:
    """Indented lines, one an item."""
    return "\n".join(f"  - {item}" for item in items)
