"""What `fusegen plan` prints for each committed spec: schedules, kernels, bytes and reasons.

To accept a new plan, after reading the difference: FUSEGEN_ACCEPT=1 pytest tests/plan/test_golden_plans.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusegen.explain.text import report
from tests.plan.planning import SPECS, committed

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", SPECS)
def test_plan_of_a_committed_spec(name: str) -> None:
    text = report(committed(name)) + "\n"
    expected = GOLDEN / f"{name}.txt"
    if os.environ.get("FUSEGEN_ACCEPT"):
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text, encoding="utf-8", newline="\n")
    assert text == expected.read_text(encoding="utf-8")


def test_no_golden_without_its_spec() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == SPECS
