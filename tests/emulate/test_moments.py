"""Statistics of data that is hard on them, through all schedules, by the policy of verification."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from fusegen.verify.judgement.policy import table  # noqa: E402
from tests.emulate.moment_cases import CASES, GROUPS, SCHEDULES, fits  # noqa: E402
from tests.emulate.moments import comparisons  # noqa: E402

pytestmark = pytest.mark.torch


def cases():
    for chain in SCHEDULES:
        for case in CASES:
            # A group has a column at least; with one value each, eager refuses a single row.
            if chain == "group" and case.sets // GROUPS == 1 and case.values == 1:
                continue
            for schedule in SCHEDULES[chain]:
                if fits(schedule, case):
                    name = f"{chain}-{case.id}-{schedule}"
                    yield pytest.param(chain, case, schedule, id=name.replace(" ", "_"))


@pytest.mark.parametrize(("chain", "case", "schedule"), list(cases()))
def test_statistics_are_as_accurate_as_eagers(chain, case, schedule, emulation_cache):
    found = comparisons(chain, case, schedule, emulation_cache)
    assert all(each.ok for each in found), f"\n{table(found, failures_only=True)}"
