"""Kernels inside other people's packages: in setup.py, `setup(**kernels("specs", package="mypackage.generated"))`.

A build renders the specs, compiles them as `fusegen wheel` does, and adds the generated packages to the given one. An
editable install writes and compiles them in the source directory, as `fusegen build` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console
from setuptools import Command, Distribution
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.errors import CompileError

from fusegen.build import Request, build_extensions
from fusegen.errors import FusegenError
from fusegen.plan.packages import plan_packages
from fusegen.plan.plan import Plan
from fusegen.plan.tuning_file import SUFFIX
from fusegen.render.output import write_files
from fusegen.render.package import Files, render_all
from fusegen.spec.find import spec_files
from fusegen.wheel.stage import shipped_paths, stage
from fusegen.wheel.tools import require


def kernels(*specs: str | Path, package: str, targets: Sequence[str] | None = None) -> dict[str, Any]:
    """Arguments for `setup()`: `cmdclass`, and `distclass`.

    specs: files, or directories of them, from the directory of setup.py. package: the dotted name of the one that the
    generated packages are to be in; it needs no `__init__.py`. targets: in place of each spec's own.
    """
    options = {"specs": tuple(map(Path, specs)), "package": package, "targets": targets}
    with_kernels = {"sub_commands": [*build.sub_commands, ("build_kernels", None)]}
    commands = {
        "build": type("build", (build,), with_kernels),
        "build_kernels": type("build_kernels", (_BuildKernels,), options),
        "bdist_wheel": _PortableWheel,
    }
    return {"cmdclass": commands, "distclass": _WithLibraries}


class _WithLibraries(Distribution):
    """The wheel is for one platform."""

    def has_ext_modules(self) -> bool:
        return True


class _PortableWheel(bdist_wheel):
    """The wheel is for every Python 3, unless the project has extensions of its own."""

    def get_tag(self) -> tuple[str, str, str]:
        tag = super().get_tag()
        return tag if self.distribution.ext_modules else ("py3", "none", tag[2])


class _BuildKernels(Command):
    """A part of setuptools' `build`, by its protocol for such commands."""

    description = "render specs and compile them"
    user_options: ClassVar[list[tuple[str, str, str]]] = []

    specs: tuple[Path, ...]
    package: str
    targets: Sequence[str] | None
    editable_mode = False
    build_lib: Any
    build_temp: Any

    def initialize_options(self) -> None:
        self.build_lib = self.build_temp = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"), ("build_temp", "build_temp"))

    def run(self) -> None:
        console = Console(stderr=True, highlight=False)
        try:
            if self.editable_mode:
                write_files(self._rendered, self._source)
                requests = [
                    Request(self._source / plan.spec.name, self.targets or plan.spec.targets) for plan in self._plans
                ]
                build_extensions(requests, console=console)
                return
            require("elftools")
            self._refuse_drift()
            made = stage(self._plans, Path(self.build_temp, "fusegen"), targets=self.targets, console=console)
            for path, file in made.items():
                (self._output / path).parent.mkdir(parents=True, exist_ok=True)
                self.copy_file(str(file), str(self._output / path))
        except FusegenError as error:
            raise CompileError(str(error)) from error

    def get_source_files(self) -> list[str]:
        """What a source distribution has to have."""
        files = spec_files(self.specs)
        tunings = [file.with_name(file.stem + SUFFIX) for file in files]
        return [path.as_posix() for path in (*files, *tunings) if path.is_file()]

    def get_outputs(self) -> list[str]:
        return [str(self._output / path) for path in shipped_paths(self._plans, self._rendered)]

    def get_output_mapping(self) -> dict[str, str]:
        """For editable installs: where each output is in the source directory."""
        paths = shipped_paths(self._plans, self._rendered) if self.editable_mode else []
        return {str(self._output / path): str(self._source / path) for path in paths}

    @cached_property
    def _plans(self) -> list[Plan]:
        return plan_packages(spec_files(self.specs))

    @cached_property
    def _rendered(self) -> Files:
        return render_all(self._plans)

    @property
    def _output(self) -> Path:
        return Path(self.build_lib, *self.package.split("."))

    @property
    def _source(self) -> Path:
        """Where the package is, or would be, beside what is written by hand."""
        return Path(self.get_finalized_command("build_py").get_package_dir(self.package))

    def _refuse_drift(self) -> None:
        """Where generated files are committed, those are shipped that were reviewed."""
        for path, text in self._rendered.items():
            file = self._source / path
            if file.is_file() and file.read_bytes().replace(b"\r\n", b"\n") != text.encode():
                specs = " ".join(map(str, self.specs))
                raise CompileError(
                    f"{file} is not what the specs give: run `fusegen build --output {self._source} {specs}`"
                )
