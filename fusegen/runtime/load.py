"""`load(name)`: the nn.Module class of a generated package."""

from __future__ import annotations

import difflib
import functools
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import ModuleType
from typing import Any

from fusegen.runtime.errors import LoadError
from fusegen.runtime.importing import import_package


def load(name: str, directory: str | Path = "generated") -> type[Any]:
    """The nn.Module class of the generated package `name` in `directory`.

    A relative directory is below the current one, as for open(). What has to work from anywhere imports the module by
    its place, or gives `Path(__file__).parent / "generated"`.
    It is imported once: every call, and `import generated.<name>` where that works, give the same class.
    It need not be built; without its extension the module runs on the CPU.

    Its modules come through to other processes of `multiprocessing`, such as the workers of a DataLoader, which load
    the class by this directory and name. Other pickles, those of torch.save too, have the class by the name of its
    Python module, as all classes: whoever reads one calls `load` before, unless that name can be imported there.
    """
    folder = Path(directory).resolve()
    file = folder / name / "__init__.py"
    if not name.isidentifier() or not file.is_file():
        raise LoadError(_missing(name, folder))
    found = _module_class(import_package(folder, name), file)
    ForkingPickler.register(found, functools.partial(_reduced, str(folder), name))
    return found


def _reduced(folder: str, name: str, module: Any) -> tuple[Any, ...]:
    """What `multiprocessing` sends: pickle's own, but for where the class is from."""
    _, (_, *arguments), *rest = module.__reduce_ex__(2)
    return _new, (folder, name, *arguments), *rest


def _new(folder: str, name: str, *arguments: Any) -> Any:
    """An object without state of the class that `load` gives."""
    cls = load(name, folder)
    return cls.__new__(cls, *arguments)


def available(directory: str | Path = "generated") -> list[str]:
    """The names of the generated packages in a directory, sorted."""
    # The binding marks a package as ours, and the plan one of regions: `support` and whatever else lies there has none.
    marks = ("bindings.cpp", "plan.json")
    return sorted({path.parent.name for mark in marks for path in Path(directory).glob(f"*/{mark}")})


def _module_class(module: ModuleType, file: Path) -> type[Any]:
    names = getattr(module, "__all__", None)
    found = getattr(module, names[0], None) if names else None
    if not isinstance(found, type):
        raise LoadError(f"{file} is not a package that fusegen generated: it exports no class")
    return found


def _missing(name: str, folder: Path) -> str:
    if not folder.is_dir():
        return f"no directory {folder}: run `fusegen build SPEC` where it is to be, or give load() its directory"
    names = available(folder)
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f"no generated package {name!r} in {folder}: did you mean {' or '.join(map(repr, near))}?"
    if names:
        return f"no generated package {name!r} in {folder}, which has: {', '.join(names)}"
    return f"no generated package {name!r} in {folder}, which has none: run `fusegen build SPEC`"
