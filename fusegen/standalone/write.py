"""Writing a standalone file."""

from __future__ import annotations

from pathlib import Path

from fusegen.errors import Diagnostic, SpecError


def write(text: str, path: Path) -> None:
    """Raises SpecError where that cannot be written."""
    try:
        path.write_text(text, encoding="ascii", newline="\n")
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError([Diagnostic("FG502", f"cannot write {path}: {reason}")]) from error
