"""The command lines of one build: a compilation for every source, and the link."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fusegen.build.flags import (
    contraction_flags,
    core_flags,
    cxx_flags,
    link_flags,
    module_flags,
    nvcc_flags,
    part_flags,
)
from fusegen.build.key import Inputs, Unit, is_cuda
from fusegen.build.libraries import Libraries
from fusegen.build.steps import Step
from fusegen.build.toolchain import Toolchain
from fusegen.paths import SUPPORT

_MODULE_WEIGHT = 20_000  # it takes as long as kernels of about so many bytes
_CONTRACTION_WEIGHT = 30_000


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

        It runs where the source is, whose name then has no machine's path, nor does `__FILE__`.
        """
        weight, what = 0, str(unit)
        if unit in self.inputs.cuda:
            compiler = self._nvcc(unit, cores)
            weight = unit.source.stat().st_size
        elif is_cuda(unit):
            compiler = [*self.toolchain.nvcc_command(), *contraction_flags(self.targets)]
            weight, what = _CONTRACTION_WEIGHT, f"{unit} for {', '.join(self.targets)}"
        elif unit in self.inputs.shared:
            compiler = module_compiler(self.toolchain.cxx, self.libraries)
            weight = _MODULE_WEIGHT
        else:
            compiler = [os.fspath(self.toolchain.cxx), *cxx_flags(self.verification), *self.libraries.torch_headers]
        place = unit.source.parent
        support = os.path.relpath(self.inputs.package.parent / SUPPORT, place)
        command = [*compiler, "-I", support, "-c", unit.source.name, "-o", os.fspath(output)]
        return Step(f"{place.name}: {what}", output, command, cwd=place, weight=weight)

    def _nvcc(self, unit: Unit, cores: int) -> list[str]:
        compiler = [
            *self.toolchain.nvcc_command(),
            *nvcc_flags(self.targets, self.verification, self.inputs.has_product),
        ]
        compiler += core_flags(cores, self.targets)
        return compiler if unit.part is None else [*compiler, *part_flags(unit.part)]

    def link_step(self, objects: Sequence[Path], output: Path) -> Step:
        """Links all objects. `-L` is for this machine's linker alone; the object keeps no path."""
        before, libraries = link_flags()
        command = [
            os.fspath(self.toolchain.cxx),
            *before,
            "-o",
            os.fspath(output),
            *(os.fspath(path) for path in objects),
            f"-L{self.libraries.torch_lib}",
            *self.toolchain.nvcc.library_flags(),
            *libraries,
        ]
        package = self.inputs.package
        return Step(f"{package.name}: {output.name}", output, command, cwd=package, needs=tuple(objects))


def module_compiler(cxx: str | Path, libraries: Libraries) -> list[str]:
    """The compiler of the Python module; its source and its output are to follow."""
    python = ["-isystem", os.fspath(libraries.python_include)]
    return [os.fspath(cxx), *module_flags(), *libraries.torch_headers, *python]
