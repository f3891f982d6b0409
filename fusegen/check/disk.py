"""What is below the output directory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fusegen.errors import Diagnostic, SpecError
from fusegen.paths import SUPPORT, is_by_product
from fusegen.render.files.manifest import MANIFEST


@dataclass(frozen=True)
class Disk:
    """Files by their path below the directory, with `/`, without the manifest and what a build leaves."""

    files: Mapping[str, bytes]
    manifest: bytes | None

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was built there yet."""
        return self.manifest is None and not self.files

    @property
    def packages(self) -> set[str]:
        """The names of directories that may be packages."""
        return {_top(path) for path in self.files if "/" in path} - {SUPPORT}

    def without(self, packages: Collection[str], rendered: Collection[str]) -> Disk:
        """What is left where these packages, and the shared files that they alone use, are other specs'."""
        theirs = {*packages, SUPPORT}
        kept = {path: data for path, data in self.files.items() if path in rendered or _top(path) not in theirs}
        return Disk(kept, self.manifest)


def _top(path: str) -> str:
    return path.partition("/")[0]


def read_disk(directory: Path, rendered: Iterable[str], *, complete: bool) -> Disk:
    """The rendered paths that are there; with `complete` every other file too. Raises SpecError."""
    if directory.exists() and not directory.is_dir():
        raise SpecError([Diagnostic("FG501", f"{directory} is not a directory")])
    paths = {*rendered, *(_walk(directory) if complete else ())}
    with reading(directory):
        found = {path: _read(directory / path) for path in sorted(paths)}
        manifest = _read(directory / MANIFEST)
    return Disk({path: data for path, data in found.items() if data is not None}, manifest)


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """Raises SpecError where something below the directory cannot be read."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError([Diagnostic("FG507", f"cannot read {error.filename or directory}: {reason}")]) from error


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _walk(directory: Path) -> Iterator[str]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = PurePosixPath(Path(folder, name).relative_to(directory).as_posix())
            if not is_by_product(path) and str(path) != MANIFEST:
                yield str(path)
