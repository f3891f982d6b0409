"""The table of launch shapes in kernels.cu, and what the launcher takes from it: by GPU, mode and rows."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulatedLibrary, EmulationError, compile_kernels  # noqa: E402
from fusegen.plan.launches.shapes import Shapes  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.modules.plan import Plan  # noqa: E402
from fusegen.plan.tunings.tuning_file import tuning_path  # noqa: E402
from fusegen.render.output import write_files  # noqa: E402
from fusegen.render.package import render_all, render_package  # noqa: E402
from fusegen.runtime.launchers import Call, Launcher  # noqa: E402
from tests.render.test_purity import elsewhere  # noqa: E402

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
NAME = "matmul_bn_bias_div_swish"
CHANNELS = 8192
TWO_PASS_16 = {"schedule": "two_pass", "pointwise_blocks": 16}
TWO_PASS_2 = {"schedule": "two_pass", "pointwise_blocks": 2}
TILE = {"schedule": "persistent", "column_threads_per_row": 8}
# Programs of a tuning: dtype, rows and the shapes that are not the default.
SM_90 = {
    "train_forward": [
        ("float32", 2000, TWO_PASS_16),
        ("float32", 8000, {}),
        ("bfloat16", 2000, {}),
        ("bfloat16", 100, TILE),
        ("bfloat16", 50000, TWO_PASS_2),
    ],
    "train_backward": [("float32", 8, TILE)],
    "eval_forward": [("float16", 8, {})],
}
SM_80 = {"eval_backward": [("float32", 8, {"pointwise_blocks": 32})]}


def machine(programs: dict) -> dict:
    figures = {"channels": CHANNELS, "microseconds": 1.0, "default_microseconds": 2.0}
    entries = {
        name: [{"dtype": dtype, "rows": rows, **figures, **shapes} for dtype, rows, shapes in found]
        for name, found in programs.items()
    }
    return {"gpu": "NVIDIA Test", "torch": "2.10.0", "cuda": "13.0", "programs": entries}


def tuned(root: Path) -> Plan:
    """The spec's plan for two targets, with a tuning for each."""
    text = (ROOT / "specs" / f"{NAME}.yaml").read_text(encoding="utf-8")
    assert "targets: [sm_90]" in text
    spec = root / f"{NAME}.yaml"
    spec.write_text(text.replace("targets: [sm_90]", "targets: [sm_80, sm_90]"), encoding="utf-8")
    architectures = {"sm_80": machine(SM_80), "sm_90": machine(SM_90)}
    tuning_path(spec).write_text(json.dumps({"fusegen_tuning": 1, "architectures": architectures}))
    return plan_file(spec)


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> Plan:
    return tuned(tmp_path_factory.mktemp("specs"))


@pytest.fixture(scope="module")
def kernels(plan: Plan) -> str:
    return render_package(module_of(plan))[f"{NAME}/kernels.cu"]


@pytest.fixture(scope="module")
def library(plan: Plan, tmp_path_factory, emulation_cache: Path) -> EmulatedLibrary:
    root = tmp_path_factory.mktemp("generated")
    write_files(render_all([module_of(plan)]), root)
    return compile_kernels(
        root / NAME / "kernels.cu", cache=emulation_cache, modes=MODES.values(), checked=False, optimised=False
    )


def entries(kernels: str, program: str) -> list[str]:
    """The lines of a program's table, without blanks and comments."""
    (text,) = re.findall(rf"constexpr Tuned k{program}Shapes\[\] = \{{\n(.*?)\n\}};", kernels, re.DOTALL)
    found = re.findall(r"\{(.*?)\}\},", "".join(re.sub("//.*", "", text).split()))
    return [line.replace("Shapes{}.with", "").replace("&Shapes::", "") for line in found]


def test_a_line_for_each_range_of_each_dtype(kernels: str) -> None:
    # Autocast modes are in the line of their activations' dtype; 2000 sqrt(2) = 2828. What is not named is the default.
    assert entries(kernels, "TrainForward") == [
        "90,modes(0),2828,8192,8192,{(schedule,kTwoPass).with(pointwise_blocks,16)",
        "90,modes(0),kAnyRows,8192,8192,{Shapes{}",
        "90,modes(1,3),141,8192,8192,{(schedule,kPersistentIfItFits).with(column_threads_per_row,8)",
        "90,modes(1,3),35355,8192,8192,{Shapes{}",
        "90,modes(1,3),kAnyRows,8192,8192,{(schedule,kTwoPass).with(pointwise_blocks,2)",
    ]
    assert f"specs/{NAME}.tuning.json" in kernels


def test_each_architecture_has_its_lines(kernels: str) -> None:
    assert "80,modes(0),kAnyRows,8192,8192,{(pointwise_blocks,32)" in entries(kernels, "EvalBackward")


def test_what_was_not_tuned_has_no_table(kernels: str) -> None:
    assert kernels.count("constexpr Tuned ") == 3 and "kEvalForwardShapes" not in kernels
    committed = (ROOT / "generated" / "gemm_add_relu" / "kernels.cu").read_text(encoding="utf-8")
    if not tuning_path(ROOT / "specs" / "gemm_add_relu.yaml").exists():
        assert "Tuned" not in committed and "tuning.cuh" not in committed


def test_a_tuned_spec_is_rendered_alike_elsewhere(plan: Plan, tmp_path: Path) -> None:
    spec = tmp_path / f"{NAME}.yaml"
    tuned(tmp_path)
    files = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in render_all([module_of(plan)]).items()}
    found = elsewhere(tmp_path, specs=[spec.name], order="backwards", PYTHONHASHSEED="4242")
    assert {path: found[path] for path in files} == files


# What launchers take. The two-pass schedule needs a workspace, more of it the more blocks there are; the persistent
# one next to none.

MODES = {"float32": 0, "bfloat16": 1, "float16": 2, "autocast bfloat16": 3}


def workspace(library: EmulatedLibrary, program: str, mode: str, rows: int, shapes: Shapes | None = None) -> int:
    call = Call(MODES[mode], rows, CHANNELS, forced=shapes)
    return library.call_int64(f"fusegen_{NAME}_{program}_workspace", call.struct)


@pytest.mark.parametrize(
    ("program", "mode", "rows", "taken"),
    [
        ("train_forward", "float32", 500, Shapes(**TWO_PASS_16)),
        ("train_forward", "float32", 2828, Shapes(**TWO_PASS_16)),
        ("train_forward", "float32", 2829, Shapes()),
        ("train_forward", "bfloat16", 141, Shapes("persistent", column_threads_per_row=8)),
        ("train_forward", "bfloat16", 35355, Shapes()),
        ("train_forward", "bfloat16", 35356, Shapes(**TWO_PASS_2)),
        ("train_forward", "autocast bfloat16", 35356, Shapes(**TWO_PASS_2)),
        ("train_forward", "float16", 500, Shapes("persistent")),  # measured in other dtypes only
        ("eval_backward", "float32", 40000, Shapes()),  # measured on another GPU only
    ],
)
def test_the_launcher_takes_the_line_of_its_gpu_mode_and_rows(library, program, mode, rows, taken) -> None:
    found = workspace(library, program, mode, rows)
    assert found == workspace(library, program, mode, rows, taken)
    others = [Shapes(**TWO_PASS_16), Shapes(**TWO_PASS_2), Shapes("two_pass"), Shapes("two_pass", pointwise_blocks=32)]
    if program == "train_forward" and rows >= 2828:
        assert len({workspace(library, program, mode, rows, each) for each in others}) == 4, "they are told apart"


def test_other_widths_are_not_what_was_measured(library) -> None:
    name, rows = f"fusegen_{NAME}_train_forward_workspace", 500
    for channels, near in ((4096, True), (16384, True), (4092, False), (16388, False)):
        found, two_pass = (
            library.call_int64(name, Call(0, rows, channels, forced=shapes).struct)
            for shapes in (None, Shapes(**TWO_PASS_16))
        )
        assert (found == two_pass) == near


def test_another_gpu_would_take_its_own_line(library) -> None:
    wide = workspace(library, "eval_backward", "float32", 40000, Shapes(pointwise_blocks=32))
    assert workspace(library, "eval_backward", "float32", 40000) < wide


def test_a_line_for_kernels_on_chip_gives_way_where_they_do_not_fit(library) -> None:
    rows = 100_000  # of 4 bytes, and no multiprocessor has as much for the narrowest tile
    assert workspace(library, "train_backward", "float32", rows) == workspace(
        library, "train_backward", "float32", rows, Shapes("two_pass")
    )
    persistent = workspace(library, "train_backward", "float32", 64, Shapes("persistent"))
    assert workspace(library, "train_backward", "float32", 64) == persistent
    assert persistent < workspace(library, "train_backward", "float32", 64, Shapes("two_pass"))


def test_forced_shapes_come_before_the_table(plan: Plan, library) -> None:
    assert workspace(library, "train_forward", "float32", 500) > 0
    assert workspace(library, "train_forward", "float32", 500, Shapes("persistent")) == 0
    program = plan.variants[0].forward
    launcher = Launcher(plan, program)
    arguments = launcher.arguments(dict.fromkeys(launcher.tensors), dict.fromkeys(program.constants, 1.0))
    with pytest.raises(EmulationError, match="CUDA error 9$"):
        library.call(launcher.symbol, Call(0, 100_000, CHANNELS, forced=Shapes("persistent")).struct, arguments)
