"""The rendered text of every committed spec, and of chains of the tests."""

from __future__ import annotations

import functools
from pathlib import Path

from fusegen.plan.load import planned_file
from fusegen.plan.modules.module import ModulePlan, module_of
from fusegen.render.package import Files, render_all
from tests.plan.planning import planned

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))


@functools.cache
def rendered() -> Files:
    """What generated/ should hold, but for its manifest."""
    return render_all(_planned())


@functools.cache
def _planned() -> list[ModulePlan]:
    return [planned_file(path) for path in SPECS]


def spec_of() -> dict[str, str]:
    """The name of the spec that each package is of, also of those of regions."""
    return {name: plan.spec.name for plan in _planned() for name in plan.package_names}


def kernels(root: Path, steps: tuple[str, ...]) -> str:
    """kernels.cu of a chain."""
    files = render_all([module_of(planned(root, *steps))])
    return next(text for path, text in files.items() if path.endswith("kernels.cu"))
