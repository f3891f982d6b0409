"""Unknown ops that a generated package has nevertheless: they are a plugin's, which is not installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fusegen.errors import Diagnostic, SpecError, quote
from fusegen.files import parse_json

_UNKNOWN_OP = "FG203"


def told(error: SpecError, output: Path) -> SpecError:
    """The error, which says of such an op where it is from. output: the directory of the generated packages."""
    return SpecError([_told(each, output) for each in error.diagnostics])


def _told(diagnostic: Diagnostic, output: Path) -> Diagnostic:
    if diagnostic.code != _UNKNOWN_OP or diagnostic.location is None:
        return diagnostic
    name = Path(diagnostic.location.file).stem
    op = next((op for op in _generated_ops(output / name / "plan.json") if quote(op) in diagnostic.message), None)
    if op is None:
        return diagnostic
    return replace(diagnostic, hint=f"a plugin had it when {output / name} was generated: install that plugin")


def _generated_ops(path: Path) -> list[str]:
    """The ops of a generated package's chain; none where the file is not what fusegen writes."""
    try:
        chain = parse_json(path.read_bytes())["chain"]
        return [str(step["op"]) for step in chain]
    except (OSError, ValueError, KeyError, TypeError):
        return []
