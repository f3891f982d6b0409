"""`get_inputs` and `get_init_inputs` of a standalone file, copied from the file of the original."""

from __future__ import annotations

import ast
from pathlib import Path

from fusegen.errors import Diagnostic, Location, SpecError
from fusegen.standalone.inputs import Inputs
from fusegen.standalone.sources import plain
from fusegen.standalone.statements import Statement, statements

_WANTED = ("get_inputs", "get_init_inputs")
_OF_FILES = {"__name__", "__file__"}  # an exported file may be executed without either


def inputs_of_file(path: Path) -> Inputs:
    """The two functions of a Python file, with the top-level statements that they need. The file is not run.

    Raises SpecError where it cannot be read, has neither, or where these statements need what no standalone file has.
    """
    try:
        return _copied(path, path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        reason = str(error) or type(error).__name__
        raise SpecError([Diagnostic("FG101", f"cannot read {path}: {reason}")]) from error


def _copied(path: Path, text: str) -> Inputs:
    every = [*statements(text)]
    # What stands under `if __name__ == "__main__"` is not there for who imports the file.
    imported = [each for each in every if not (isinstance(each.node, ast.If) and each.used & _OF_FILES)]
    needed = [each for each in imported if isinstance(each.node, ast.FunctionDef) and each.node.name in _WANTED]
    if not needed:
        raise SpecError([Diagnostic("FG510", f"{path} has neither get_inputs() nor get_init_inputs()")])
    for statement in needed:  # grows
        needed += [each for each in imported if each not in needed and each.defined & statement.used]
    lines: list[str] = []
    for statement in sorted(needed, key=lambda each: each.node.lineno):
        reason = _refused(statement)
        if reason is not None:
            message = f"{' and '.join(_WANTED)} cannot be copied: they need {reason}"
            raise SpecError([Diagnostic("FG510", message, Location(str(path), statement.node.lineno, 1))])
        lines += ["", ""] if lines and isinstance(statement.node, ast.FunctionDef | ast.ClassDef) else []
        lines += statement.text.splitlines()
    return Inputs("as the file of the original has them", lines)


def _refused(statement: Statement) -> str | None:
    """What it has that no standalone file has."""
    for each in ast.walk(statement.node):
        if isinstance(each, ast.ImportFrom) and each.level:
            return "an import relative to that file"
        if isinstance(each, ast.Try) or type(each).__name__ == "TryStar":
            return "a try statement, which graders refuse"
    if statement.used & _OF_FILES:
        return f"{' or '.join(sorted(statement.used & _OF_FILES))}, which it may not have"
    if _meaning(statement.text) != _meaning(plain(statement.text)):
        return "the word 'pass', which graders refuse, or letters outside ASCII that cannot be escaped"
    return None


def _meaning(text: str) -> str:
    """Without positions, comments and docstrings."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ""
    for each in ast.walk(tree):
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
            each.value = ast.Constant(None)
    return ast.dump(tree)
