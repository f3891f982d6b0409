"""Imports a package from any directory, under one name, once.

A class must be the same object however it was reached: a second copy of the module would break isinstance
and pickle, and would register the same ops again. So a package gets the name that a plain import would give
it (`generated.<name>`) wherever that name is free or already means this directory, and a private one where
it means something else.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType

_lock = threading.RLock()


def import_package(folder: Path, name: str) -> ModuleType:
    """The package `name` in `folder` (an absolute, resolved path), imported now or before."""
    file = folder / name / "__init__.py"
    with _lock:
        loaded = _loaded_from(file)
        if loaded is not None:
            return loaded
        parent = folder.name if _claim(folder.name, folder, name) else _private_parent(folder)
        return importlib.import_module(f"{parent}.{name}")


def _loaded_from(file: Path) -> ModuleType | None:
    """The module that was imported from this file, under whatever name."""
    for module in list(sys.modules.values()):
        origin = getattr(module, "__file__", None)
        # Comparing names first spares a file system call for each of thousands of modules.
        if isinstance(origin, str) and origin.endswith(f"{file.parent.name}/__init__.py"):
            if Path(origin).resolve() == file and not getattr(module.__spec__, "_initializing", False):
                return module
    return None


def _claim(parent: str, folder: Path, name: str) -> bool:
    """Whether `<parent>.<name>` means the package in `folder`. Takes the name if nothing has it."""
    if not parent.isidentifier():
        return False
    try:
        found = importlib.util.find_spec(parent)
    except (ImportError, ValueError):  # a module that is half made, or made by hand without a spec
        return False
    if found is None:
        _add_parent(parent, folder)
        return True
    # Several directories may share a namespace package, and the first that has the name wins.
    for location in found.submodule_search_locations or ():
        if (Path(location) / name / "__init__.py").is_file():
            return Path(location).resolve() == folder
    return False


def _private_parent(folder: Path) -> str:
    parent = "_fusegen_" + hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    if parent not in sys.modules:
        _add_parent(parent, folder)
    return parent


def _add_parent(parent: str, folder: Path) -> None:
    """An empty package whose submodules are what is in the folder."""
    spec = importlib.util.spec_from_loader(parent, loader=None, is_package=True)
    assert spec is not None
    spec.submodule_search_locations = [str(folder)]
    sys.modules.setdefault(parent, importlib.util.module_from_spec(spec))  # packages make the private one, too
    # The finder may have looked into this folder before the package was written.
    importlib.invalidate_caches()
