"""The tuning file as it is written: read back it is the same, and what was not measured again stays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.plan.launches.shapes import DEFAULT, Shapes
from fusegen.plan.launches.tuning import Architecture, Measurement
from fusegen.plan.load import plan_file
from fusegen.plan.modules.plan import Plan
from fusegen.plan.tunings.tuning_file import read_tuning, tuning_path
from fusegen.tune.file import merged, tuning_text, write_tuning
from tests.tune.standins import CHAIN

TWO_PASS, TILE = Shapes("two_pass", pointwise_blocks=32), Shapes("persistent", column_threads_per_row=2)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "demo.yaml"
    path.write_text(CHAIN.format(name="demo"), encoding="utf-8")
    return plan_file(path)


def measured(program: str, rows: int, shapes: Shapes, dtype: str = "float32") -> Measurement:
    return Measurement(program, dtype, rows, 24, None, shapes, 10.25, 12.5)


def architecture(*measurements: Measurement, target: str = "sm_90", gpu: str = "NVIDIA Test") -> Architecture:
    return Architecture(target, gpu, "2.10.0", "13.0", measurements)


FORWARD = (measured("train_forward", 8, TILE), measured("train_forward", 64, DEFAULT))
BACKWARD = (measured("train_backward", 64, TWO_PASS),)


def test_what_is_written_is_read_back(plan: Plan, tmp_path: Path) -> None:
    tuning = (architecture(*FORWARD, target="sm_80", gpu='an "A100"'), architecture(*FORWARD, *BACKWARD))
    path = tmp_path / "demo.tuning.json"
    write_tuning(path, tuning)
    assert read_tuning(plan, path) == tuning
    assert plan_file(tmp_path / "demo.yaml").tuning == tuning
    assert json.loads(path.read_text()) and path.read_bytes().endswith(b"}\n")


def test_clusters_are_those_of_the_gpu_that_was_measured(plan: Plan, tmp_path: Path) -> None:
    """Whatever other targets the spec has."""
    clusters = measured("train_forward", 64, Shapes("persistent", column_cluster=4))
    path = tmp_path / "demo.tuning.json"
    write_tuning(path, (architecture(*FORWARD, target="sm_80"), architecture(clusters)))
    assert read_tuning(plan, path)[1].measurements == (clusters,)
    write_tuning(path, (architecture(clusters, target="sm_80"),))
    with pytest.raises(SpecError, match="sm_80 has no clusters of 4 blocks"):
        read_tuning(plan, path)


def test_a_line_says_what_differs_from_the_default(plan: Plan) -> None:
    lines = [line.strip() for line in tuning_text((architecture(*FORWARD),)).splitlines() if "dtype" in line]
    figures = '"microseconds": 10.25, "default_microseconds": 12.5}'
    assert lines == [
        f'{{"dtype": "float32", "rows": 8, "channels": 24, "schedule": "persistent", '
        f'"column_threads_per_row": 2, {figures},',
        f'{{"dtype": "float32", "rows": 64, "channels": 24, {figures}',
    ]


def test_a_line_says_what_ran(plan: Plan, tmp_path: Path) -> None:
    told = replace(FORWARD[0], ran="column", launches="column 1 of 8x4", default_ran="two_pass")
    default = replace(FORWARD[1], ran="two_pass", launches="pointwise 2x4 of 8x32, pointwise 1 of 8x32")
    write_tuning(tmp_path / "demo.tuning.json", (architecture(told, default),))
    lines = [
        json.loads(line.strip().rstrip(","))
        for line in tuning_text((architecture(told, default),)).splitlines()
        if "dtype" in line
    ]
    assert [list(line)[-3:] for line in lines] == [
        ["ran", "launches", "default_ran"], ["default_microseconds", "ran", "launches"],
    ]  # fmt: skip
    assert (lines[0]["ran"], lines[0]["default_ran"], lines[1]["ran"]) == ("column", "two_pass", "two_pass")
    assert read_tuning(plan, tmp_path / "demo.tuning.json") == (architecture(told, default),)


def test_a_program_for_which_the_default_is_fastest_is_left_out(plan: Plan) -> None:
    default = measured("eval_forward", 64, DEFAULT)
    (found,) = merged(plan, architecture(default, *BACKWARD))
    assert found.measurements == BACKWARD
    assert merged(plan, architecture(default)) == ()


def test_all_sizes_stay_where_one_differs(plan: Plan) -> None:
    (found,) = merged(plan, architecture(*FORWARD))
    assert found.measurements == FORWARD


def test_the_order_is_that_of_the_plan_and_of_the_rows(plan: Plan) -> None:
    narrow = measured("train_forward", 8, TILE, "bfloat16")
    (found,) = merged(plan, architecture(*BACKWARD, narrow, *reversed(FORWARD)))
    assert found.measurements == (*FORWARD, narrow, *BACKWARD)


def test_what_was_not_measured_again_stays(plan: Plan) -> None:
    other = architecture(*FORWARD, target="sm_80")
    plan = replace(plan, tuning=(other, architecture(*FORWARD, *BACKWARD)))
    again = measured("train_forward", 64, TWO_PASS)
    assert merged(plan, architecture(again)) == (other, architecture(FORWARD[0], again, *BACKWARD))
    # Every size measured again, and nothing gained.
    defaults = [replace(each, shapes=DEFAULT) for each in FORWARD]
    assert merged(plan, architecture(*defaults)) == (other, architecture(*BACKWARD))


def test_figures_of_another_gpu_do_not_stay(plan: Plan) -> None:
    plan = replace(plan, tuning=(architecture(*FORWARD, *BACKWARD),))
    again = architecture(measured("train_forward", 64, TWO_PASS), gpu="NVIDIA Other")
    assert merged(plan, again) == (again,)


def test_nothing_to_say_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.tuning.json"
    write_tuning(path, ())
    path.write_text("{}")
    write_tuning(path, ())
    assert not path.exists()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="FG502"):
        write_tuning(tuning_path(tmp_path / "absent" / "demo.yaml"), (architecture(*FORWARD),))
