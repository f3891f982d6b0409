"""Statements at the top level of Python sources: the names that each defines and uses."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator


def statements(text: str) -> Iterator[Statement]:
    """Those of a source. Raises SyntaxError and ValueError."""
    yield from (Statement(text, node) for node in ast.parse(text).body)


class Statement:
    """defined, used: global names. text: with decorators."""

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


def _used(table: symtable.SymbolTable) -> set[str]:
    top = table.get_type() == "module"
    found = {each.get_name() for each in table.get_symbols() if each.is_referenced() and (top or each.is_global())}
    return found.union(*(_used(child) for child in table.get_children()))


def _root(node: ast.expr) -> str:
    """The name of what has an attribute or an element; empty for what has none."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
