"""What a launcher says of itself, as a value."""

from __future__ import annotations

from fusegen.runtime.choice import choice

TOLD = """\
{"considered": "row", "chosen": false, "reason": "it does not fit"}
{"considered": "two_pass", "chosen": true, "reason": "any size", "estimate": 12.5}
{"kernel": "row_reduction", "passes": [0, 0], "grid": [100, 1, 4], "block": [256, 1, 1], "shared_bytes": 64}
{"kernel": "pointwise", "passes": [1, 2], "grid": [1, 1, 1], "block": [32, 8, 1], "shared_bytes": 0}
"""


def test_the_schedule_and_its_launches() -> None:
    found = choice(TOLD)
    assert found.schedule == "two_pass" and [each.estimate for each in found.considered] == [None, 12.5]
    assert [launch.passes for launch in found.launches] == [(0, 0), (1, 2)]
    assert found.launched == "row_reduction 100x1x4 of 256, pointwise 1 of 32x8"


def test_nothing_runs_where_there_are_no_elements() -> None:
    assert choice("").schedule == "" and choice("").launched == ""
