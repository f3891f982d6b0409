"""The packages of a directory: planned, rendered, compiled and loaded for the chains of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch

from fusegen.build.progress import shown
from fusegen.capture.specs import Specs
from fusegen.errors import Diagnostic, SpecError
from fusegen.paths import BUILD_STORE
from fusegen.plan.launches.devices import is_known
from fusegen.plan.load import planned_files
from fusegen.plan.modules.module import ModulePlan, compiled
from fusegen.progress import tell
from fusegen.render.files.spec_digests import spec_digests
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.runtime.importing import import_package

SPECS, GENERATED = "specs", "generated"
DEFAULT_TARGET = "sm_90"
Build = Literal["now", "never"]


class Packages:
    """Of one directory. build: "now" compiles what is not compiled yet, if there is a GPU; "never" writes nothing, and
    takes the packages that are there."""

    def __init__(self, directory: Path, build: Build) -> None:
        self.directory = directory.resolve()
        self.build = build
        self._modules: dict[str, ModuleType] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without the Python modules, which are imported again: `torch.save` of a compiled model takes its backend."""
        return self.__dict__ | {"_modules": {}}

    def prepare(self, place: Callable[[Specs], Sequence[str]]) -> dict[str, ModuleType | str]:
        """The Python modules of the packages that `place` names, by their names, or why there is none. place: puts
        chains into the specs of the directory. Raises SpecError and BuildError."""
        with self.locked():
            specs = Specs(self.directory / SPECS, [planned_target()])
            names = list(dict.fromkeys(place(specs)))
            missing = [name for name in names if name not in self._modules]
            if self.build == "now" and missing:
                specs.write()
                make(self.output, specs, missing, compile=torch.cuda.is_available())
            reasons = {name: self._obstacle(specs, name) for name in names}
        for name in missing:
            if reasons[name] is None:
                self._modules[name] = import_package(self.output, name)
        return {name: reasons[name] or self._modules[name] for name in names}

    def locked(self) -> AbstractContextManager[None]:
        """One process at a time writes into the directory."""
        hint = "give a directory= that can be written, or build='never', which takes the packages that are there"
        return nullcontext() if self.build == "never" else locked(self.output, hint)

    def _obstacle(self, specs: Specs, name: str) -> str | None:
        """Why a package cannot be used."""
        if not (self.output / name / "__init__.py").is_file():
            return f"there is no package {self.output / name}, and build is 'never'"
        target, known = gpu_target(), specs.targets(name)
        if target is not None and target not in [each.rstrip("af") for each in known]:
            return f"{specs.path(name)} has the targets {', '.join(known)}, and this GPU is {target}"
        return None

    @property
    def output(self) -> Path:
        return self.directory / GENERATED


def make(output: Path, specs: Specs, names: Iterable[str], *, compile: bool) -> None:
    """Renders the packages of specs into a directory, and compiles them. Raises SpecError and BuildError."""
    with shown():
        tell("planning and rendering")
        plans = planned_files([specs.path(name) for name in names])
        write_files(render_all(plans), output, specs=spec_digests(plans))
    if compile:
        _compile(output, plans)


@contextmanager
def locked(output: Path, hint: str | None = None) -> Iterator[None]:
    """One process at a time writes specs and packages: all of a distributed run begin alike. output: the directory of
    the packages. Raises SpecError with the hint where it cannot be written."""
    from filelock import FileLock

    store = output / BUILD_STORE
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError([Diagnostic("FG502", f"{error.filename}: {error.strerror}", hint=hint)]) from None
    with FileLock(store / "specs.lock"):
        yield


def _compile(output: Path, plans: Sequence[ModulePlan]) -> None:
    from rich.console import Console

    from fusegen.build import Request, build_extensions

    requests = [Request(output / plan.spec.name, plan.spec.targets) for plan in compiled(plans)]
    build_extensions(requests, console=Console(stderr=True, highlight=False))


def planned_target() -> str:
    """The GPU that new specs are for."""
    target = gpu_target()
    return target if target is not None and is_known(target) else DEFAULT_TARGET


def gpu_target() -> str | None:
    """The GPU at hand, as nvcc calls it; None if there is none."""
    if not torch.cuda.is_available():
        return None
    return "sm_{}{}".format(*torch.cuda.get_device_capability())
