"""Where fusegen finds its own data files, looks and writes by default, and what a build leaves beside its output."""

from __future__ import annotations

from pathlib import Path, PurePath

from fusegen.errors import InternalError

# Where commands look and write, below the current directory, unless told otherwise.
DEFAULT_SPECS = Path("specs")
DEFAULT_OUTPUT = Path("generated")
DEFAULT_FUSED = Path("fused")  # has directories of these two names

SUPPORT = "support"  # what packages of an output directory share
MODULE_SOURCE = "python_module.cpp"  # there: compiled into each library

# What building and importing leave below the output directory; git ignores it.
EXTENSION = "_C"
AUTOGRAD = "_autograd"  # in `support`, with the version of the torch that it is for
BUILD_STORE = ".build"
_BYTECODE = "__pycache__"


def is_by_product(path: PurePath) -> bool:
    """Whether a path, relative to the output directory, is one that a build or an import leaves, or is hidden."""
    hidden = any(part.startswith(".") or part == _BYTECODE for part in path.parts)
    return hidden or path.name.startswith((f"{EXTENSION}.", f"{AUTOGRAD}."))


def templates_directory() -> Path:
    """The directory with the Jinja2 templates and the plain headers.

    The wheel carries it inside the package; in a checkout (or an editable install) it is at the top level.
    The packaged one comes first: beside an installed package, `../templates` would be somebody else's.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "templates", package.parent / "templates"):
        if candidate.is_dir():
            return candidate
    raise InternalError(f"no templates directory in {package} or beside it: the installation is incomplete")
