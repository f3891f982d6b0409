"""The files of templates/support, and which of them packages use: a directory has those alone.

What a file has does not depend on the packages, so that one more package adds files and changes none.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fusegen.paths import MODULE_SOURCE, SUPPORT, templates_directory
from fusegen.render.files.includes import included

COMPILED = (".cuh", ".cu", ".h", ".cpp")
_SUFFIXES = (*COMPILED, ".py")
_BINDINGS = "/bindings.cpp"
_INIT = f"{SUPPORT}/__init__.py"
_NAME = re.compile(r"\b_support\.(\w+)")


def support_files() -> dict[str, str]:
    """The text of each support source, by its path below an output directory. Other suffixes, as those of editors'
    files, are left out."""
    support = templates_directory() / SUPPORT
    sources = [path for path in support.rglob("*") if path.suffix in _SUFFIXES]
    return {f"{SUPPORT}/{p.relative_to(support).as_posix()}": p.read_text(encoding="utf-8") for p in sorted(sources)}


def used_support(files: Mapping[str, str]) -> dict[str, str]:
    """The support sources that `files` include, import or are compiled with, and all that these use, sorted by path."""
    known = support_files()
    return _reached(files, known, public_names(known[_INIT]))


def read_compiled(directory: Path, paths: Iterable[str]) -> dict[str, str]:
    """Those of the paths below a directory that a library may be compiled from, and are there. Raises OSError."""
    found = [path for path in paths if path.endswith(COMPILED) and (directory / path).is_file()]
    return {path: (directory / path).read_text(encoding="utf-8", errors="replace") for path in found}


def library_digests(files: Mapping[str, str]) -> dict[str, str]:
    """By the names of packages, the digest of what the library of each is compiled from: of those files of the package
    and of `support` that its C++ needs. files: of packages and of `support`, by their paths.

    Lines that are comments do not count: a library need not be built again for them.
    """
    found = {}
    for name in (path.removesuffix(_BINDINGS) for path in files if path.endswith(_BINDINGS)):
        own = {path: text for path, text in files.items() if path.startswith(f"{name}/") and path.endswith(COMPILED)}
        sources = sorted({**own, **_reached(own, files, {})}.items())
        lines = (line for _, text in sources for line in [*text.splitlines(), "\0"])
        kept = (line for line in lines if not line.lstrip().startswith("//"))
        found[name] = hashlib.sha256("\n".join(kept).encode()).hexdigest()[:12]
    return found


def _reached(files: Mapping[str, str], known: Mapping[str, str], homes: Mapping[str, str]) -> dict[str, str]:
    """Those of the known files that the others use, and all that these use, in the order of the known ones."""
    found = set[str]()
    waiting = [path for each in files.items() for path in _used_by_package(*each, homes)]
    while waiting:
        path = waiting.pop()
        if path in known and path not in found:
            found.add(path)
            waiting += _used_by_support(path, known[path])
    return {path: text for path, text in known.items() if path in found}


@functools.cache
def public_names(init: str) -> dict[str, str]:
    """The names that packages take of `_support`, and the modules that have them. init: the text of __init__.py."""
    names: dict[str, str] = {}
    for node in ast.parse(init).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            names |= {each.name: str(node.module) for each in node.names}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_OPTIONAL":
            names |= {name: module for module, found in ast.literal_eval(node.value).items() for name in found}
    return names


def _used_by_package(path: str, text: str, homes: Mapping[str, str]) -> Iterator[str]:
    """What a package's file uses itself; some of these paths are no files of `support`."""
    if path.endswith(".py"):
        yield _INIT
        yield from (f"{SUPPORT}/{homes[name]}.py" for name in _NAME.findall(text) if name in homes)
    else:
        yield from _included(path, text)
    if path.endswith(_BINDINGS):
        yield f"{SUPPORT}/{MODULE_SOURCE}"  # in each library


@functools.cache
def _used_by_support(path: str, text: str) -> tuple[str, ...]:
    """The same of a file of `support`. Each version of it is parsed once in a process."""
    if not path.endswith(".py"):
        return tuple(_included(path, text))
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.append(f"{SUPPORT}/{node.module}.py")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(f"{SUPPORT}/{node.value}")  # differentiated.py reads autograd.cpp
    return tuple(found)


def _included(path: str, text: str) -> Iterator[str]:
    for header in included(path, text):
        yield from (header, header.removesuffix(".h") + ".cu")  # contraction.h is that of a source
