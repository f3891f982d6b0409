"""Which launch shapes serve which rows, and the tuning beside a spec as a part of its plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.explain.text import report
from fusegen.plan.launches.shapes import DEFAULT, Shapes
from fusegen.plan.launches.tuning import Measurement, Range, ranges
from fusegen.plan.load import plan_file, planned_files
from fusegen.plan.summary import summary
from fusegen.plan.tunings.tuning_file import tuning_path
from tests.plan.planning import LINEAR, planned

TWO_PASS, WIDE = Shapes("two_pass", pointwise_blocks=16), Shapes("two_pass", pointwise_blocks=32)


def measured(*sizes: tuple[int, Shapes], groups: int | None = None) -> tuple[Measurement, ...]:
    return tuple(Measurement("forward", "float32", rows, 8, groups, shapes, 1.0, 2.0) for rows, shapes in sizes)


def test_a_range_ends_where_the_next_size_is_nearer_in_ratio() -> None:
    found = ranges(measured((8, TWO_PASS), (12, DEFAULT), (20, WIDE)))
    # sqrt(8 * 12) = 9.8, sqrt(12 * 20) = 15.5
    assert found == (Range(9, 8, 8, TWO_PASS), Range(15, 8, 8, DEFAULT), Range(None, 8, 8, WIDE))
    for rows, near in ((9, 8), (10, 12), (15, 12), (16, 20)):
        assert near == min((8, 12, 20), key=lambda size: max(size / rows, rows / size))


def test_far_from_where_shapes_were_measured_the_default_serves() -> None:
    # 8 * sqrt(2) = 11.3, 64 / sqrt(2) = 45.3, 64 * sqrt(2) = 90.5
    found = ranges(measured((8, TWO_PASS), (64, WIDE), (1000, DEFAULT)))
    assert [(each.most_rows, each.shapes) for each in found] == [
        (11, TWO_PASS), (45, DEFAULT), (90, WIDE), (None, DEFAULT)
    ]  # fmt: skip
    # Fewer rows than any that were measured, and more, are left to the nearest.
    assert ranges(measured((8, DEFAULT), (64, WIDE))) == (Range(45, 8, 8, DEFAULT), Range(None, 8, 8, WIDE))


def test_neighbours_with_the_same_shapes_are_one_range() -> None:
    found = ranges(measured((8, TWO_PASS), (64, TWO_PASS), (100, DEFAULT)))
    assert found == (Range(80, 8, 8, TWO_PASS), Range(None, 8, 8, DEFAULT))
    assert ranges(measured((8, TWO_PASS), (64, TWO_PASS))) == (Range(None, 8, 8, TWO_PASS),)


def test_groups_of_another_length_are_another_range() -> None:
    found = ranges((*measured((8, TWO_PASS), groups=2), *measured((64, TWO_PASS), groups=4)))
    assert found == (Range(22, 8, 4, TWO_PASS), Range(None, 8, 2, TWO_PASS))


def test_where_the_default_is_all_there_are_no_ranges() -> None:
    assert ranges(()) == ranges(measured((8, DEFAULT), (64, DEFAULT))) == ()


def test_persistent_and_l2_are_taken_where_they_fit_only() -> None:
    (found,) = ranges(measured((8, Shapes("persistent", row_waves=2))))
    assert found.shapes == Shapes("persistent_if_it_fits", row_waves=2)
    (found,) = ranges(measured((8, Shapes("l2", l2_lag=2))))
    assert found.shapes == Shapes("l2_if_it_fits", l2_lag=2)


# Files

ENTRY = {"dtype": "bfloat16", "rows": 64, "channels": 32, "microseconds": 2.5, "default_microseconds": 3}
MACHINE = {"gpu": "NVIDIA Test", "torch": "2.10.0", "cuda": "13.0"}


def write(spec: Path, **programs: list[dict]) -> None:
    text = {"fusegen_tuning": 1, "architectures": {"sm_90": {**MACHINE, "programs": programs}}}
    tuning_path(spec).write_text(json.dumps(text))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    planned(tmp_path, LINEAR, "op: group_norm, name: norm, num_groups: 4")
    return (tmp_path / "spec.yaml").rename(tmp_path / "demo.yaml")


def test_the_file_lies_beside_the_spec_and_is_no_spec() -> None:
    assert tuning_path("specs/demo.yaml") == Path("specs/demo.tuning.json")


def test_a_plan_has_the_tuning_beside_its_spec(spec: Path) -> None:
    assert plan_file(spec).tuning == ()
    write(spec, forward=[{**ENTRY, "groups": 4, "schedule": "persistent", "row_waves": 2}])
    for plan in (plan_file(spec), *planned_files([spec])[0].plans):
        (architecture,) = plan.tuning
        assert (architecture.target, architecture.gpu) == ("sm_90", "NVIDIA Test")
        shapes = Shapes("persistent", row_waves=2)
        assert architecture.measurements == (Measurement("forward", "bfloat16", 64, 32, 4, shapes, 2.5, 3),)
        assert architecture.of("forward", "bfloat16") and not architecture.of("forward", "float32")


def test_the_plan_tells_what_ran_at_the_sizes_of_each_range(spec: Path) -> None:
    small = {**ENTRY, "groups": 4, "schedule": "two_pass", "ran": "two_pass", "launches": "pointwise 4 of 32x8"}
    middle = {**small, "rows": 66, "default_ran": "row"}
    large = {**ENTRY, "groups": 4, "rows": 1000, "ran": "row", "launches": "row 8 of 32x8"}
    write(spec, forward=[small, middle, large])
    # 66 * sqrt(2) = 93.3
    assert [line for line in report(plan_file(spec)).splitlines() if line.startswith("  forward, bfloat16")] == [
        "  forward, bfloat16, up to 93 rows: schedule two_pass; ran two_pass at 64 rows, two_pass at 66 rows",
        "  forward, bfloat16, beyond that: default; ran row at 1000 rows",
    ]
    without = {name: value for name, value in middle.items() if name != "ran"}
    write(spec, forward=[small, without, large])
    assert "up to 93 rows: schedule two_pass; ran two_pass at 64 rows\n" in report(plan_file(spec))


def test_what_ran_is_a_line_of_text(spec: Path) -> None:
    write(spec, forward=[{**ENTRY, "groups": 4, "ran": "row\x1b[2J"}])
    with pytest.raises(SpecError, match="one line of printable text"):
        plan_file(spec)


def test_mistakes_in_a_tuning_come_with_those_of_other_specs(spec: Path) -> None:
    write(spec, forward=[{**ENTRY, "groups": 4, "row_waves": 2}])
    other = spec.with_name("other.yaml")
    other.write_text("fusegen: 1\n")
    with pytest.raises(SpecError) as caught:
        planned_files([spec, other])
    files = {diagnostic.location.file for diagnostic in caught.value.diagnostics}
    assert files == {tuning_path(spec).as_posix(), other.as_posix()}


def test_the_plan_tells_of_it(spec: Path) -> None:
    untuned = plan_file(spec)
    write(
        spec,
        backward=[
            {**ENTRY, "groups": 4, "schedule": "two_pass", "pointwise_blocks": 16},
            {**ENTRY, "groups": 4, "rows": 8},
        ],
    )
    plan = plan_file(spec)
    assert report(plan).removeprefix(report(untuned)).strip().splitlines() == [
        "launch shapes on sm_90, measured on NVIDIA Test (torch 2.10.0, CUDA 13.0):",
        "  backward, bfloat16, up to 45 rows: default",
        "  backward, bfloat16, beyond that: schedule two_pass, pointwise_blocks 16",
    ]
    assert "tuning" not in summary(untuned)
    (architecture,) = summary(plan)["tuning"]
    assert architecture["ranges"][1] == {
        "program": "backward", "dtype": "bfloat16", "most_rows": None, "schedule": "two_pass", "pointwise_blocks": 16
    }  # fmt: skip
