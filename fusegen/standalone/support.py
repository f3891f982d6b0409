"""What generated modules share, in one text: of each file what is needed, in a function, so that names stay apart.

The files are those of packages, templates/support. Names in templates/standalone/support take the place of theirs.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fusegen.paths import SUPPORT, templates_directory
from fusegen.render.files.support import public_names
from fusegen.standalone.statements import Statement, statements

_NOQA = re.compile(r"  # noqa\b.*$", re.MULTILINE)

Name = tuple[str, str]
"""A file, and a name in it."""


@dataclass
class SupportText:
    """imports: names of what is not support, by module; of "" modules. lines: statements that make `_support`."""

    imports: dict[str, set[str]]
    lines: list[str]


@dataclass
class _File:
    """siblings: names of other files, by those that this one has for them. outside: imports, likewise."""

    name: str
    about: str = ""
    statements: list[Statement] = field(default_factory=list)
    siblings: dict[str, Name] = field(default_factory=dict)
    outside: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Another source of the file, whose names take the place of those that are there."""
        lines, replaced = text.splitlines(), set[str]()
        for statement in statements(text):
            node = statement.node
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                self.about = str(node.value.value)
            elif isinstance(node, ast.ImportFrom) and node.level:
                self._add_siblings(node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                self.outside |= {each.asname or each.name: (module, _imported(each)) for each in node.names}
            else:
                first = node.lineno - 1 - len(getattr(node, "decorator_list", []))
                while first and lines[first - 1].startswith("#"):
                    first -= 1
                statement.text = _NOQA.sub("", "\n".join(lines[first : node.end_lineno]))
                self.statements = [each for each in self.statements if not each.defined & statement.defined - replaced]
                self.statements.append(statement)
                replaced |= statement.defined

    def _add_siblings(self, node: ast.ImportFrom) -> None:
        file = (node.module or "").removeprefix(f"{SUPPORT}.")
        if file != self.name:
            self.siblings |= {each.asname or each.name: (file, each.name) for each in node.names}


def support_text(used: Iterable[str]) -> SupportText:
    """used: the names that are needed of `_support`."""
    files, kept = _files(), dict[str, list[Statement]]()
    homes, imports = _homes(), dict[str, set[str]]()
    public = {name: (homes[name], name) for name in sorted(set(used))}
    made: dict[str, list[str]] = {}  # by file, in an order in which all are there

    def need(file: _File, name: str) -> None:
        """Adds the statements of a name, and all that they use."""
        for statement in file.statements:
            if name in statement.defined and statement not in kept.setdefault(file.name, []):
                kept[file.name].append(statement)
                for other in sorted(statement.used):
                    resolve(file, other)

    def resolve(file: _File, name: str) -> None:
        if name in file.siblings:
            other, original = file.siblings[name]
            need(files[other], original)
        elif name in file.outside:
            module, text = file.outside[name]
            imports.setdefault(module, set()).add(text)
        else:
            need(file, name)

    def make(file: _File) -> None:
        if file.name not in made:
            for other, _ in _taken(file, kept[file.name]).values():
                make(files[other])
            made[file.name] = []

    for other, original in public.values():
        need(files[other], original)
    for other, _ in public.values():
        make(files[other])
    wanted = {*public.values()}
    for name in made:
        wanted |= {*_taken(files[name], kept[name]).values()}
    lines = [line for name in made for line in _lines(files[name], kept[name], wanted)]
    lines += ["_support = SimpleNamespace(", *(f"    {n}=_{file}.{own}," for n, (file, own) in public.items()), ")"]
    return SupportText(imports, lines)


@cache
def _files() -> dict[str, _File]:
    found: dict[str, _File] = {}
    for directory in _directories():
        for path in sorted(directory.glob("*.py")):
            found.setdefault(path.stem, _File(path.stem)).add(path.read_text(encoding="utf-8"))
    return found


@cache
def _homes() -> dict[str, str]:
    """The files of the names of `_support`."""
    inits = [(directory / "__init__.py").read_text(encoding="utf-8") for directory in _directories()]
    return {name: file for init in inits for name, file in public_names(init).items()}


def _directories() -> tuple[Path, Path]:
    return templates_directory() / SUPPORT, templates_directory() / "standalone" / SUPPORT


def _taken(file: _File, kept: Sequence[Statement]) -> dict[str, Name]:
    """What these statements take of other files."""
    used = {name for statement in kept for name in statement.used}
    return {name: place for name, place in file.siblings.items() if name in used}


def _lines(file: _File, kept: Sequence[Statement], wanted: Iterable[Name]) -> Iterator[str]:
    """The function of a file. wanted: what others take."""
    yield from ("@_made", f"def _{file.name}():")
    yield from textwrap.indent(f'"""{file.about}"""', "    ").splitlines()
    for name, (other, original) in _taken(file, kept).items():
        yield f"    {name} = _{other}.{original}"
    after = True
    for statement in file.statements:
        if statement in kept:
            is_block = isinstance(statement.node, ast.FunctionDef | ast.ClassDef)
            yield from [""] if is_block or after else []
            yield from textwrap.indent(statement.text, "    ").splitlines()
            after = is_block
    names = sorted(name for place, name in wanted if place == file.name)
    yield from ("", "    return SimpleNamespace(", *(f"        {name}={name}," for name in names), "    )", "", "")


def _imported(each: ast.alias) -> str:
    return f"{each.name} as {each.asname}" if each.asname else each.name
