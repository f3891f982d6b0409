"""From a spec file to its plan."""

from __future__ import annotations

from pathlib import Path

from fusegen.ops.catalogue import STEPS
from fusegen.plan.plan import Plan, make_plan
from fusegen.spec.model import spec_model
from fusegen.spec.validate import load


def plan_file(path: Path | str) -> Plan:
    """The plan of a spec file. Raises SpecError."""
    spec, document = load(spec_model(STEPS), path)
    return make_plan(spec, document)
