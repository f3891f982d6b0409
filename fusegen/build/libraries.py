"""Where torch's and Python's headers and libraries are. Importing torch would alone take over a second."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from fusegen.build.errors import BuildError

# The oldest torch whose stable ABI the extension uses (TORCH_TARGET_VERSION in torch_glue.h). Built against a newer
# one, it still loads in this.
OLDEST_TORCH = (2, 10)


@dataclass(frozen=True)
class Libraries:
    """What the extension is compiled and linked against."""

    torch_version: str
    torch_include: Path
    torch_lib: Path
    python_version: str
    python_include: Path

    @property
    def torch_headers(self) -> list[str]:
        """Options of the C++ compiler. As system headers: warnings in torch's, or its pybind11's, are nobody's
        business here. `__FILE__` in them has no machine's path.
        """
        torch = os.fspath(self.torch_include)
        return ["-isystem", torch, f"-ffile-prefix-map={torch}/="]


def find_libraries() -> Libraries:
    """The installed torch and the running Python, or a BuildError that names the remedy."""
    remedy = f"run: pip install 'torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}'"
    # For a top-level name this only looks; nothing is imported.
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError("torch is not installed in this environment", hint=remedy)
    root = Path(spec.submodule_search_locations[0])
    version = _torch_version(root)
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST_TORCH:
        raise BuildError(f"torch {version} is too old to build against", hint=remedy)
    if not (root / "include" / "torch" / "csrc" / "stable" / "library.h").is_file():
        raise BuildError(f"{root} has no headers of torch's stable ABI", hint=remedy)
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise BuildError(
            f"no Python.h in {include}", hint="install its headers (on Debian: apt-get install python3-dev)"
        )
    return Libraries(
        torch_version=version,
        torch_include=root / "include",
        torch_lib=root / "lib",
        python_version=f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}",
        python_include=include,
    )


def _torch_version(root: Path) -> str:
    file = root / "version.py"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    found = re.search(r"__version__ = '([^']+)'", text)
    if found is None:
        raise BuildError(f"{root} does not say which torch it is", hint="reinstall torch")
    return found.group(1)
