"""Launch shapes: the same in Python and in C++, and those that are worth measuring for each kind of program."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest

from fusegen.paths import templates_directory
from fusegen.plan.launches.kinds import TUNABLES
from fusegen.plan.launches.shapes import DEFAULT, SCHEDULES, Shapes
from fusegen.plan.programs.model import Program
from fusegen.plan.tunings.tuning_space import schedule_names, tunable_names, tuning_space
from tests.plan.planning import SPECS, committed

HEADER = (templates_directory() / "support" / "shapes.cuh").read_text(encoding="utf-8")


def program(spec: str, name: str) -> Program:
    return next(program for program in committed(spec).programs if program.name == name)


def test_the_struct_is_the_same_in_both_languages() -> None:
    body = re.search(r"struct Shapes \{\n(.*?)\n\};", HEADER, re.DOTALL)[1]
    found = re.findall(r"^  int64_t (\w+) = (\w+);", body, re.MULTILINE)
    assert len(found) == len(re.findall(r"^  \w+ \w+( = \w+)?;", body, re.MULTILINE)), "fields with a default alone"
    assert [name for name, _ in found] == [field.name for field in fields(Shapes)]
    assert found[0] == ("schedule", "kAutomatic")
    assert [int(value) for _, value in found[1:]] == [getattr(DEFAULT, name) for name, _ in found[1:]]


def test_schedules_have_the_same_numbers_in_both_languages() -> None:
    body = re.search(r"enum Schedule : int64_t \{\n(.*?)\n\};", HEADER, re.DOTALL)[1]
    found = re.findall(r"^  k(\w+) = (\d),", body, re.MULTILINE)
    assert [(name, int(number)) for name, number in found] == [
        ("".join(part.capitalize() for part in name.split("_")), number) for number, name in enumerate(SCHEDULES)
    ]


def test_every_field_but_the_schedule_is_a_knob_with_its_default_among_the_values() -> None:
    assert list(TUNABLES) == [field.name for field in fields(Shapes)][1:]
    for name, tunable in TUNABLES.items():
        assert getattr(DEFAULT, name) in tunable.values and len(set(tunable.values)) == len(tunable.values) > 1


def test_changes() -> None:
    shapes = Shapes("two_pass", pointwise_blocks=16)
    assert shapes.changes == {"schedule": "two_pass", "pointwise_blocks": 16} and DEFAULT.changes == {}
    assert (str(shapes), str(DEFAULT)) == ("schedule two_pass, pointwise_blocks 16", "default")


@pytest.mark.parametrize("spec", SPECS)
def test_candidates_of_every_program(spec: str) -> None:
    for each in committed(spec).programs:
        found = tuning_space(each)
        assert found[0] == DEFAULT and len(set(found)) == len(found)
        for shapes in found[1:]:
            automatic = shapes.schedule == "automatic"
            assert automatic == (len(each.schedules) == 1)
            tunables = tunable_names(each, None if automatic else shapes.schedule)
            assert shapes.changes.keys() <= {"schedule", *tunables}


@pytest.mark.parametrize(
    ("spec", "name", "tunables"),
    [
        ("gemm_add_relu", "forward", {None: set()}),
        ("gemm_add_relu", "backward", {None: {"pointwise_blocks"}}),
        (
            "gemm_scale_bn",
            "train_forward",
            {
                "persistent": {"column_threads_per_row", "column_cluster"},
                "l2": {"l2_lag"},
                "two_pass": {"pointwise_blocks"},
            },
        ),
        (
            "gemm_groupnorm_hardtanh",
            "forward",
            {"persistent": {"row_waves", "row_share"}, "two_pass": {"row_reduction_blocks"}},
        ),
        (
            "gemm_groupnorm_hardtanh",
            "backward",
            {"persistent": {"row_waves", "row_share"}, "two_pass": {"pointwise_blocks", "row_reduction_blocks"}},
        ),
    ],
)
def test_each_schedule_with_each_setting_of_what_it_reads(spec: str, name: str, tunables: dict) -> None:
    each = program(spec, name)
    assert set(schedule_names(each) or [None]) == set(tunables)
    for schedule, names in tunables.items():
        assert set(tunable_names(each, schedule)) == names
        chosen = Shapes(schedule or "automatic")
        for tunable in names:
            for value in TUNABLES[tunable].values:
                expected = replace(chosen, **{tunable: value})
                assert expected in tuning_space(each)


def test_nobody_can_tell_which_knobs_an_automatic_choice_reads() -> None:
    assert tunable_names(program("gemm_scale_bn", "train_forward"), None) == ()
