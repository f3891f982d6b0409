"""How the work of planning grows with a chain: no faster than the square of its length."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from fusegen.plan.modules.plan import Plan
from fusegen.render.cuda import render_kernels
from tests.plan.planning import LINEAR, planned

CHAINS = {
    "norms_of_two_kinds": ("op: group_norm, name: gn{i}, num_groups: 4", "op: batch_norm, name: bn{i}"),
    "norms_and_functions": ("op: rms_norm, name: n{i}", "op: silu", "op: mish"),
}


def calls_of(steps: tuple[str, ...], root: Path) -> Counter[str]:
    """How often anything is called while a chain is planned, and while it is rendered."""
    counts: Counter[str] = Counter()
    now = "plan"

    def count(_frame: object, event: str, _arg: object) -> None:
        counts[now] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        plan: Plan = planned(root, LINEAR, *steps)
        now = "render"
        render_kernels(plan)
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.parametrize("name", CHAINS)
def test_twice_the_norms_are_about_four_times_the_work(name: str, tmp_path: Path) -> None:
    def steps(times: int) -> tuple[str, ...]:
        return tuple(step.format(i=i) for i in range(times) for step in CHAINS[name])

    calls_of(steps(1), tmp_path)  # whatever happens only once in a process
    few, many = calls_of(steps(3), tmp_path), calls_of(steps(6), tmp_path)
    # The third power would be 8; a constant part makes it less than 4 for short chains.
    assert many["plan"] < 5 * few["plan"]
    assert many["render"] < 5 * few["render"]
