"""Where toy programs are compiled: beside a copy of the support headers, as a generated package lies."""

from __future__ import annotations

import shutil
from pathlib import Path

from fusegen.emulate import EmulatedLibrary, compile_kernels
from fusegen.paths import templates_directory

_HERE = Path(__file__).parent


def written(source: str, root: Path) -> Path:
    """A kernels.cu with this text below `root`, with all headers of this directory beside it."""
    shutil.copytree(templates_directory() / "support", root / "support")
    (root / "programs").mkdir()
    for header in _HERE.glob("*.cuh"):
        shutil.copy(header, root / "programs")
    path = root / "programs" / "kernels.cu"
    path.write_text(source, encoding="utf-8")
    return path


def compiled(source: str, root: Path, cache: Path, *, checked: bool = True) -> EmulatedLibrary:
    """For the emulator; cache, checked: see compile_kernels(). Every array in shared memory is looked at."""
    return compile_kernels(written(source, root), cache=cache, checked=checked, references=True)
