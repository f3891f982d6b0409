"""The library that differentiates the ops of all packages below one output directory: `support/_autograd.<torch>.so`.

It speeds up calls and nothing more, so a torch whose headers it does not fit fails no build: packages have the same in
Python. Its key file lies beside it and remembers that failure too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusegen.build.flags import autograd_flags, sources_flags
from fusegen.build.key import digest_of_file, why_changed
from fusegen.build.libraries import Libraries
from fusegen.build.steps import relative
from fusegen.build.toolchain import Toolchain
from fusegen.paths import AUTOGRAD

SOURCE = f"{AUTOGRAD.removeprefix('_')}.cpp"


@dataclass(frozen=True)
class AutogradLibrary:
    """That of one `support` directory, for one torch."""

    support: Path
    toolchain: Toolchain
    libraries: Libraries

    @property
    def source(self) -> Path:
        return self.support / SOURCE

    @property
    def path(self) -> Path:
        return self.support / f"{AUTOGRAD}.{self.libraries.torch_version}.so"

    @property
    def key_file(self) -> Path:
        return self.path.with_name(f"{self.path.stem}.key")

    def parts(self) -> Mapping[str, str]:
        """What it is made of, by readable names."""
        return {
            f"source {SOURCE}": digest_of_file(self.source),
            "autograd flags": " ".join(autograd_flags()),
            "C++ compiler": self.toolchain.identity()["cxx"],
            "torch": self.libraries.torch_version,
        }

    def why_stale(self) -> str | None:
        """Why it has to be built; None if it is up to date, cannot be built or has no source here."""
        return why_changed(self.path, self.key_file, self.parts()) if self.source.is_file() else None

    def command(self, output: Path) -> list[str]:
        """Makes it, run in `support`."""
        return autograd_command(self.toolchain.cxx_command(), self.libraries, self.source, output)


def autograd_command(cxx: Sequence[str], libraries: Libraries, source: Path, output: Path) -> list[str]:
    """Compiles and links the source, run where it is. The library has the source's digest, which modules compare."""
    api = libraries.torch_include / "torch" / "csrc" / "api" / "include"
    includes = [*libraries.torch_headers, "-isystem", os.fspath(api)]
    link = [f"-L{libraries.torch_lib}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"]
    digest = sources_flags(digest_of_file(source)[:12])
    return [*cxx, *autograd_flags(), *digest, *includes, SOURCE, "-o", relative(output, source.parent), *link]
