"""`fusegen wheel`: specs in, a wheel out."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fusegen.errors import Diagnostic, SpecError
from fusegen.plan.plan import Plan
from fusegen.wheel.project import Wheel, pack
from fusegen.wheel.stage import stage
from fusegen.wheel.tools import require

_STAGE = ".wheel"
_VERSION = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?")


def write_wheel(plans: Sequence[Plan], wheel: Wheel, directory: Path, console: Console | None = None) -> Path:
    """Renders, compiles and packs, and returns the path of the wheel in `directory`.

    What was compiled is kept in `.wheel` there, for the next wheel. Raises SpecError, BuildError and WheelError.
    """
    require("auditwheel", "elftools", "hatchling")
    _refuse_equal_classes(plans)
    files = stage(plans, directory / _STAGE, targets=wheel.targets, console=console)
    try:
        return pack(wheel, plans, files, directory)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError([Diagnostic("FG502", f"cannot write the wheel into {directory}: {reason}")]) from error


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


def _refuse_equal_classes(plans: Sequence[Plan]) -> None:
    """The wheel's package has the classes of all specs."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        found.setdefault(plan.spec.class_name, []).append(plan.spec.name)
    diagnostics = [
        Diagnostic("FG208", f"the specs {' and '.join(names)} both have the class {name}", hint="give one its `class`")
        for name, names in found.items()
        if len(names) > 1
    ]
    if diagnostics:
        raise SpecError(diagnostics)
