"""The rendered text of every committed spec."""

from __future__ import annotations

import functools
from pathlib import Path

from fusegen.plan.load import plan_file
from fusegen.render.package import Files, render_all

ROOT = Path(__file__).resolve().parents[2]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))


@functools.cache
def rendered() -> Files:
    """What generated/ should hold, but for its manifest."""
    return render_all([plan_file(path) for path in SPECS])
