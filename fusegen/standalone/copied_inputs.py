"""`get_inputs` and `get_init_inputs` of a standalone file, copied from the file of the original."""

from __future__ import annotations

import ast
import symtable
from pathlib import Path

from fusegen.errors import Diagnostic, Location, SpecError
from fusegen.standalone.inputs import Inputs
from fusegen.standalone.sources import plain

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
    statements = [_Statement(text, node) for node in ast.parse(text).body]
    # What stands under `if __name__ == "__main__"` is not there for who imports the file.
    imported = [each for each in statements if not (isinstance(each.node, ast.If) and each.used & _OF_FILES)]
    needed = [each for each in imported if isinstance(each.node, ast.FunctionDef) and each.node.name in _WANTED]
    if not needed:
        raise SpecError([Diagnostic("FG510", f"{path} has neither get_inputs() nor get_init_inputs()")])
    for statement in needed:  # grows
        needed += [each for each in imported if each not in needed and each.defined & statement.used]
    lines: list[str] = []
    for statement in sorted(needed, key=lambda each: each.node.lineno):
        reason = statement.refused()
        if reason is not None:
            message = f"{' and '.join(_WANTED)} cannot be copied: they need {reason}"
            raise SpecError([Diagnostic("FG510", message, Location(str(path), statement.node.lineno, 1))])
        lines += ["", ""] if lines and isinstance(statement.node, ast.FunctionDef | ast.ClassDef) else []
        lines += statement.text.splitlines()
    return Inputs("as the file of the original has them", lines)


class _Statement:
    """One at the top level. defined, used: global names."""

    def __init__(self, text: str, node: ast.stmt) -> None:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        self.node = node
        self.text = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
        table = symtable.symtable(self.text, "<statement>", "exec")
        self.defined = {
            each.get_name()
            for each in table.get_symbols()
            if each.is_assigned() or each.is_imported() or each.is_namespace()
        }
        self.used = _used(table)
        changed = [each for each in ast.walk(node) if isinstance(each, ast.Attribute | ast.Subscript)]
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.defined |= {_root(each) for each in changed if isinstance(each.ctx, ast.Store)}

    def refused(self) -> str | None:
        """What it has that no standalone file has."""
        for each in ast.walk(self.node):
            if isinstance(each, ast.ImportFrom) and each.level:
                return "an import relative to that file"
            if isinstance(each, ast.Try) or type(each).__name__ == "TryStar":
                return "a try statement, which graders refuse"
        if self.used & _OF_FILES:
            return f"{' or '.join(sorted(self.used & _OF_FILES))}, which it may not have"
        if _meaning(self.text) != _meaning(plain(self.text)):
            return "the word 'pass', which graders refuse, or letters outside ASCII that cannot be escaped"
        return None


def _used(table: symtable.SymbolTable) -> set[str]:
    top = table.get_type() == "module"
    found = {each.get_name() for each in table.get_symbols() if each.is_referenced() and (top or each.is_global())}
    return found.union(*(_used(child) for child in table.get_children()))


def _root(node: ast.expr) -> str:
    """The name of what has an attribute or an element; empty for what has none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


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
