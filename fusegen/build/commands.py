"""The command lines of one build: a compilation for every source, and the link."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fusegen.build.flags import core_flags, cxx_flags, link_flags, nvcc_flags, part_flags
from fusegen.build.key import Inputs, Unit
from fusegen.build.libraries import Libraries
from fusegen.build.steps import Step
from fusegen.build.toolchain import Toolchain
from fusegen.paths import SUPPORT


@dataclass(frozen=True)
class Commands:
    """Portable flags meet this machine's paths here, and nowhere else."""

    inputs: Inputs
    toolchain: Toolchain
    libraries: Libraries
    targets: Sequence[str]
    verification: bool

    def compile_step(self, unit: Unit, output: Path, *, cores: int = 1) -> Step:
        """Compiles one unit, a CUDA source on so many cores if it can be.

        The source's name is relative to the package, so `__FILE__` has no machine's path.
        """
        source, package = unit.source, self.inputs.package
        weight = 0
        if unit in self.inputs.cuda:
            compiler = [os.fspath(self.toolchain.nvcc.path), *nvcc_flags(self.targets, self.verification)]
            compiler += core_flags(cores, self.targets)
            if unit.part is not None:
                compiler += part_flags(unit.part)
            if self.toolchain.host_option:
                compiler += ["-ccbin", os.fspath(self.toolchain.cxx)]
            includes = []
            weight = source.stat().st_size
        else:
            compiler = [os.fspath(self.toolchain.cxx), *cxx_flags(self.verification)]
            torch = self.libraries.torch_include
            # As system headers: warnings in torch's or Python's are nobody's business here.
            includes = ["-isystem", os.fspath(torch), "-isystem", os.fspath(self.libraries.python_include)]
            includes.append(f"-ffile-prefix-map={torch}/=")
        includes = ["-I", os.path.relpath(package.parent / SUPPORT, package), *includes]
        command = [*compiler, *includes, "-c", source.name, "-o", os.fspath(output)]
        return Step(f"{package.name}: {unit}", output, command, cwd=package, weight=weight)

    def link_step(self, objects: Sequence[Path], output: Path) -> Step:
        """Links all objects. `-L` is for this machine's linker alone; the object keeps no path."""
        before, libraries = link_flags()
        search = [self.libraries.torch_lib, *self.toolchain.nvcc.library_directories()]
        command = [
            os.fspath(self.toolchain.cxx),
            *before,
            "-o",
            os.fspath(output),
            *(os.fspath(path) for path in objects),
            *(f"-L{path}" for path in search),
            *libraries,
        ]
        package = self.inputs.package
        return Step(f"{package.name}: {output.name}", output, command, cwd=package, needs=tuple(objects))
