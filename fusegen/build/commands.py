"""The command lines of one build: a compilation for every source, and the link."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusegen.build.flags import (
    DEFINED,
    contraction_flags,
    core_flags,
    cxx_flags,
    link_flags,
    module_flags,
    nvcc_flags,
    part_flags,
    sources_flags,
)
from fusegen.build.key import Inputs, Unit, is_cuda
from fusegen.build.libraries import Libraries
from fusegen.build.steps import Step, relative
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
            compiler = module_compiler(self.toolchain.cxx_command(), self.libraries)
            weight = _MODULE_WEIGHT
        else:
            compiler = [
                *self.toolchain.cxx_command(),
                *cxx_flags(self.verification),
                *sources_flags(self.inputs.sources),
                *self.libraries.torch_headers,
            ]
        place = unit.source.parent
        support = os.path.relpath(self.inputs.package.parent / SUPPORT, place)
        command = [*compiler, "-I", support, "-c", unit.source.name, "-o", relative(output, place)]
        return Step(f"{place.name}: {what}", output, command, cwd=place, weight=weight)

    def _nvcc(self, unit: Unit, cores: int) -> list[str]:
        compiler = [
            *self.toolchain.nvcc_command(),
            *nvcc_flags(self.targets, self.verification, self.inputs.has_product),
        ]
        compiler += core_flags(cores, self.targets)
        return compiler if unit.part is None else [*compiler, *part_flags(unit.part)]

    def link_steps(self, objects: Mapping[Unit, Path], output: Path) -> list[Step]:
        """Links all objects, in a last step. What is undefined is an error, but for the functions of Python that the
        Python module takes from whoever loads it: where there is one, the others are linked without it before."""
        module = [unit for unit in objects if unit in self.inputs.shared and not is_cuda(unit)]
        if not module:
            return [self._link_step([*objects.values()], output, DEFINED)]
        others = [path for unit, path in objects.items() if unit not in module]
        where = output.with_name(f"{output.stem}.defined{output.suffix}")
        # It waits for the module, too: else ninja, which goes by what is behind a step, would compile that last.
        tried = self._link_step(others, where, DEFINED, after=[objects[unit] for unit in module])
        return [tried, self._link_step([*objects.values()], output, [], after=[tried.output])]

    def _link_step(
        self, objects: Sequence[Path], output: Path, flags: Sequence[str], after: Sequence[Path] = ()
    ) -> Step:
        """`-L` is for this machine's linker alone; the object keeps no path."""
        before, libraries = link_flags()
        package = self.inputs.package
        command = [
            *self.toolchain.cxx_command(),
            *before,
            *flags,
            "-o",
            relative(output, package),
            *(relative(path, package) for path in objects),
            f"-L{self.libraries.torch_lib}",
            *self.toolchain.nvcc.library_flags(),
            *libraries,
        ]
        return Step(f"{package.name}: {output.name}", output, command, cwd=package, needs=(*objects, *after))


def module_compiler(cxx: Sequence[str], libraries: Libraries) -> list[str]:
    """The compiler of the Python module; its source and its output are to follow."""
    python = ["-isystem", os.fspath(libraries.python_include)]
    return [*cxx, *module_flags(), *libraries.torch_headers, *python]
