"""`fusegen wheel`: specs in, a wheel out."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from fusegen.build.lock import held
from fusegen.errors import Diagnostic, SpecError
from fusegen.paths import BUILD_STORE
from fusegen.plan.modules.module import ModulePlan
from fusegen.wheel.project import Wheel, pack
from fusegen.wheel.stage import stage
from fusegen.wheel.tools import require

_STAGE = ".wheel"
_VERSION = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?", re.ASCII)


def write_wheel(plans: Sequence[ModulePlan], wheel: Wheel, directory: Path, console: Console | None = None) -> Path:
    """Renders, compiles and packs, and returns the path of the wheel in `directory`.

    What was compiled is kept in `.wheel` there, for the next wheel. Raises SpecError, BuildError and WheelError.
    """
    require("auditwheel", "elftools", "hatchling")
    _refuse_equal_names(plans)
    try:
        with _alone(directory / _STAGE, console):
            files = stage(plans, directory / _STAGE, targets=wheel.targets, console=console)
            return pack(wheel, plans, files, directory)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError([Diagnostic("FG502", f"cannot write the wheel into {directory}: {reason}")]) from error


@contextmanager
def _alone(directory: Path, console: Console | None) -> Iterator[None]:
    """While nobody else compiles in the directory, perhaps for other targets. Who has to wait is told."""
    (directory / BUILD_STORE).mkdir(parents=True, exist_ok=True)

    def waiting() -> None:
        if console is not None:
            console.print(f"waiting for another `fusegen wheel` in {directory.parent}", markup=False, soft_wrap=True)

    with held(directory / BUILD_STORE / "wheel.lock", waiting):
        yield


def misnamed(name: str) -> str | None:
    """Why a wheel cannot have a name; None if it can."""
    if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        return f"{name!r} is no name of a package: letters, digits, and between them - _ and ."
    imported = Wheel(name, "0").import_name
    if keyword.iskeyword(imported) or imported in sys.stdlib_module_names or imported in ("torch", "fusegen"):
        return f"a package {imported!r} is something else in Python"
    return None


def misversioned(version: str) -> str | None:
    """Why a wheel cannot have a version; None if it can."""
    return None if _VERSION.fullmatch(version) else f"{version!r} is no version, such as 1.2.0 or 1.2.0rc1"


def mislicensed(expression: str) -> str | None:
    """Why the metadata cannot have an SPDX expression; None if it can, or where hatchling, which asks the same, is
    not installed."""
    if find_spec("packaging") is None:
        return None
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        canonicalize_license_expression(expression)
    except InvalidLicenseExpression as error:
        return f"{error}; an SPDX expression is such as MIT or LicenseRef-Proprietary"
    return None


def _refuse_equal_names(plans: Sequence[ModulePlan]) -> None:
    """The wheel's package has the classes of all specs, beside a package of each spec."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        found.setdefault(plan.spec.class_name, []).append(plan.spec.name)
    diagnostics = [
        Diagnostic("FG208", f"the specs {' and '.join(names)} both have the class {name}", hint="give one its `class`")
        for name, names in found.items()
        if len(names) > 1
    ]
    specs = {plan.spec.name for plan in plans}
    for plan in plans:
        name = plan.spec.class_name
        if name in specs - {plan.spec.name}:
            message = f"{name} is both a spec and the class of the spec {plan.spec.name}"
            diagnostics.append(Diagnostic("FG208", message, hint="give the class another name"))
    if diagnostics:
        raise SpecError(diagnostics)
