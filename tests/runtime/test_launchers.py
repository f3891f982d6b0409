"""The launchers' interface: what Python makes for ctypes is what the headers declare."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import fields, replace
from pathlib import Path

import pytest

from fusegen.plan.launches.shapes import SCHEDULES, Shapes
from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.render.programs.launchers_header import namespace, struct
from fusegen.runtime.launchers import Call, Launcher
from fusegen.runtime.structs import Struct

ROOT = Path(__file__).resolve().parents[2]
# Two variants, and structs of the same names as another package's; groups; tensors of one element.
NAMES = ("gemm_batchnorm_gelu_relu", "gemm_groupnorm_hardtanh", "matmul_bn_bias_div_swish")


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [plan_file(ROOT / "specs" / f"{name}.yaml") for name in NAMES]


def layouts(plans: list[Plan]) -> dict[str, type[ctypes.Structure]]:
    found = {"fusegen::Call": Call(0, 1, 1).struct.layout}
    for plan in plans:
        for program in plan.programs:
            launcher = Launcher(plan, program)
            given = launcher.arguments(dict.fromkeys(launcher.tensors), dict.fromkeys(program.constants, 1.0))
            found[f"fusegen::{namespace(plan.spec.name)}::{struct(program)}"] = given.layout
    return found


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_structs_are_those_of_the_headers(plans: list[Plan], tmp_path: Path) -> None:
    """Headers of several packages in one source, which needs neither CUDA nor torch."""
    write_files(render_all(map(module_of, plans)), tmp_path)
    lines = ["#include <cstddef>", *(f'#include "{name}/launchers.h"' for name in NAMES)]
    for name, layout in layouts(plans).items():
        lines.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(layout)});")
        for member, *_ in layout._fields_:
            lines.append(f"static_assert(offsetof({name}, {member}) == {getattr(layout, member).offset});")
    source = tmp_path / "layouts.cpp"
    source.write_text("\n".join(lines) + "\n")
    command = ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_argument_has_its_value(plans: list[Plan]) -> None:
    plan = plans[1]
    program = plan.programs[0]
    launcher = Launcher(plan, program)
    tensors = {name: 16 * number for number, name in enumerate(launcher.tensors, 1)}
    constants = {name: float(number) for number, name in enumerate(program.constants)}
    made = launcher.arguments(tensors, constants).made()
    expected = {f"{name}_arg": value for name, value in {**tensors, **constants}.items()}
    assert {name: getattr(made, name) for name, *_ in made._fields_} == expected
    tensors.pop("y")
    with pytest.raises(KeyError, match="y"):
        launcher.arguments(tensors, constants)


def test_a_call_points_to_its_shapes() -> None:
    call = Call(mode=2, rows=3, channels=4, forced=Shapes("two_pass", pointwise_blocks=16))
    made = replace(call, stream=64).struct.made()
    numbers = ctypes.cast(made.forced, ctypes.POINTER(ctypes.c_int64))
    # In the order of `struct Shapes`: the schedule first, by its number.
    values = [SCHEDULES.index("two_pass"), *(getattr(call.forced, field.name) for field in fields(Shapes)[1:])]
    assert fields(Shapes)[0].name == "schedule" and 16 in values
    assert [numbers[i] for i in range(len(values))] == values
    assert (made.mode, made.rows, made.channels, made.groups, made.workspace, made.stream) == (2, 3, 4, 1, None, 64)


def test_a_member_without_a_value_is_refused() -> None:
    layout = Call(0, 1, 1).struct.layout
    with pytest.raises(KeyError, match="_Call: rows, width"):
        Struct(layout, {name: 0 for name, *_ in layout._fields_ if name != "rows"} | {"width": 0})
