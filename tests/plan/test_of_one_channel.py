"""Reductions of what is one channel already: that channel, or of a region of its own where it is another value."""

from __future__ import annotations

import pytest

from fusegen.plan.load import planned_file

KEPT = ("sum", "mean", "max", "min", "amax", "amin", "logsumexp")


def plan(op: str, tmp_path):
    (tmp_path / "one.yaml").write_text(
        "fusegen: 1\nname: one\ndims: {rows: 8, width: 4}\ninputs: {x: [rows, width]}\nchain:\n"
        f"  - {{op: mean, keepdim: true}}\n  - {{op: {op}}}\n  - {{op: add, input: x}}\n"
    )
    return planned_file(tmp_path / "one.yaml")


@pytest.mark.parametrize("op", KEPT)
def test_of_one_channel_it_is_that_channel(op: str, tmp_path) -> None:
    """No more is computed than without it."""
    once = plan("relu", tmp_path).plans[0].programs[0]
    twice = plan(f"{op}, keepdim: true", tmp_path).plans[0].programs[0]
    reduced = [[node.op for phase in program.phases for node in phase.sums] for program in (once, twice)]
    assert reduced[0] == reduced[1] and len(reduced[0]) == 1


@pytest.mark.parametrize("op", ["var, keepdim: true", "std, keepdim: true", "norm, keepdim: true", "softmax"])
def test_what_is_another_value_begins_a_region(op: str, tmp_path) -> None:
    """And what is wider than one channel another one: each has rows of one width."""
    found = plan(op, tmp_path).regions
    assert [[step.op for step in region.steps] for region in found] == [["mean"], [op.split(",")[0]], ["add"]]
    assert [region.channels for region in found] == [("width", "width"), (1, 1), ("width", "width")]
    assert list(found[2].inputs) == ["x", found[1].results[0]] and found[2].inputs["x"] == ("rows", "width")
