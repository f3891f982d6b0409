"""The rendered text of every committed spec, and of chains of the tests."""

from __future__ import annotations

import functools
from pathlib import Path

from fusegen.plan.load import plan_file
from fusegen.render.package import Files, render_all
from tests.plan.planning import planned

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))


@functools.cache
def rendered() -> Files:
    """What generated/ should hold, but for its manifest."""
    return render_all([plan_file(path) for path in SPECS])


def kernels(root: Path, steps: tuple[str, ...]) -> str:
    """kernels.cu of a chain."""
    files = render_all([planned(root, *steps)])
    return next(text for path, text in files.items() if path.endswith("kernels.cu"))
