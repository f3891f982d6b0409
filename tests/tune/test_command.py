"""`fusegen tune` from its arguments to what is rendered: on the emulator, with a clock that says what a test wants."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen import cli  # noqa: E402
from fusegen.bench.rounds import Spread  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from fusegen.plan.launches.shapes import DEFAULT, Shapes  # noqa: E402
from fusegen.plan.load import plan_file, planned_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.tunings.tuning_file import tuning_path  # noqa: E402
from fusegen.render.package import render_package  # noqa: E402
from fusegen.runtime.structs import Struct  # noqa: E402
from fusegen.tune import command  # noqa: E402
from fusegen.tune.command import tune_specs  # noqa: E402
from fusegen.tune.measure import fastest  # noqa: E402
from fusegen.tune.options import Options  # noqa: E402
from fusegen.tune.tail import TailError  # noqa: E402
from tests.tune.standins import CHAIN, Bench  # noqa: E402

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
TWO_PASS, TILE = Shapes("two_pass", pointwise_blocks=16), Shapes("persistent", column_threads_per_row=8)
# So long that few samples are taken.
USUAL = 100_000.0
ONE = Options(dtypes=("float32",), rows=(8,))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "demo.yaml"
    path.write_text(CHAIN.format(name="demo"), encoding="utf-8")
    return path


def microseconds(name: str, rows: int, shapes: Shapes) -> float:
    """Half of the usual for one candidate of one program, another one for many rows; 2 % less for one of another."""
    if name.endswith("train_forward"):
        return USUAL / 2 if shapes == (TWO_PASS if rows >= 64 else TILE) else USUAL
    return 0.98 * USUAL if name.endswith("eval_backward") and shapes == Shapes(pointwise_blocks=32) else USUAL


def test_from_the_arguments_to_what_is_rendered(
    spec: Path, emulation_cache: Path, capsys: pytest.CaptureFixture
) -> None:
    before = render_package(planned_file(spec))["demo/kernels.cu"]
    tune_specs([spec], Options(), Bench(emulation_cache, microseconds).device())
    plan = plan_file(spec)
    (architecture,) = plan.tuning
    assert (architecture.target, architecture.gpu, architecture.cuda) == ("sm_90", "NVIDIA Test", "13.0")
    found = [(m.program, m.dtype, m.rows, m.shapes) for m in architecture.measurements]
    assert found == [
        ("train_forward", dtype, rows, shapes)
        for dtype in ("float32", "bfloat16")
        for rows, shapes in ((8, TILE), (64, TWO_PASS), (512, TWO_PASS))  # the typical rows are 64
    ]
    assert {(m.microseconds, m.default_microseconds) for m in architecture.measurements} == {(USUAL / 2, USUAL)}
    # As the launcher says: by default tiles of columns stay on chip at all these sizes.
    told = {(m.rows, m.ran, m.default_ran) for m in architecture.measurements}
    assert told == {(8, "column", "column"), (64, "two_pass", "column"), (512, "two_pass", "column")}
    twice = ["pointwise", "final_reduction", "pointwise"]
    kernels = [[launch.split()[0] for launch in m.launches.split(", ")] for m in architecture.measurements[:3]]
    assert kernels == [["column"], twice, twice]
    shown, progress = capsys.readouterr()
    assert "demo on NVIDIA Test (sm_90)" in shown and shown.count("schedule two_pass, pointwise_blocks 16") == 4
    assert shown.count("two_pass, by default column") == 4
    assert f"next: fusegen build {spec}" in progress
    after = render_package(module_of(plan))["demo/kernels.cu"]
    assert "constexpr Tuned kTrainForwardShapes[]" in after and "Tuned" not in before
    # Again with the tuning there: the same is measured, and nothing changes.
    written = tuning_path(spec).read_bytes()
    tune_specs([spec], Options(rows=(8,), dtypes=("bfloat16",)), Bench(emulation_cache, lambda *what: USUAL).device())
    found = [(m.rows, m.shapes) for m in plan_file(spec).tuning[0].measurements if m.dtype == "bfloat16"]
    assert found == [(8, Shapes()), (64, TWO_PASS), (512, TWO_PASS)]
    again = next(m for m in plan_file(spec).tuning[0].measurements if m.shapes == Shapes())
    assert (again.ran, again.default_ran) == ("column", None)
    tune_specs([spec], Options(), Bench(emulation_cache, microseconds).device())
    assert tuning_path(spec).read_bytes() == written
    assert "nothing to change" not in capsys.readouterr().err
    tune_specs([spec], Options(), Bench(emulation_cache, microseconds).device())
    assert "nothing to change" in capsys.readouterr().err and tuning_path(spec).read_bytes() == written


def test_nothing_is_written_where_the_default_is_fastest(spec: Path, emulation_cache: Path, capsys) -> None:
    tune_specs([spec], ONE, Bench(emulation_cache, lambda *what: USUAL).device())
    assert not tuning_path(spec).exists()
    assert "the default is fastest everywhere" in capsys.readouterr().err


def test_what_was_fast_by_chance_is_not_chosen(spec: Path, emulation_cache: Path) -> None:
    called: list[Shapes] = []

    def lucky(name: str, rows: int, shapes: Shapes) -> float:
        """One of all candidates, but not beside the default alone."""
        called.append(shapes)
        return USUAL / 2 if shapes == TWO_PASS and len(set(called[-6:])) > 2 else USUAL

    tune_specs([spec], ONE, Bench(emulation_cache, lucky).device())
    assert TWO_PASS in called and not tuning_path(spec).exists()


def test_a_candidate_with_other_results_ends_it(spec: Path, emulation_cache: Path) -> None:
    bench = Bench(emulation_cache, microseconds)

    def damage(name: str, shapes: Shapes, arguments: Struct) -> None:
        if name.endswith("train_backward") and shapes == Shapes("two_pass", pointwise_blocks=32):
            ctypes.memset(arguments.members["grad_bn_bias_arg"], 0x41, 4)

    bench.damage = damage
    with pytest.raises(
        TailError, match=r"train_backward, schedule two_pass, pointwise_blocks 32: 1 of 24 elements of grad_"
    ):
        tune_specs([spec], ONE, bench.device())
    assert not tuning_path(spec).exists()


def test_as_the_command_line_ends(spec: Path, emulation_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    bench = Bench(emulation_cache, lambda *what: USUAL)
    monkeypatch.setattr(command, "require_cuda", lambda: None)
    monkeypatch.setattr(command, "cuda_device", bench.device)
    arguments = ["tune", str(spec), "--dtypes", "fp32", "--rows", "8"]
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 0

    def damage(name: str, shapes: Shapes, arguments: Struct) -> None:
        if shapes == TWO_PASS:
            ctypes.memset(arguments.members["bn_num_batches_tracked_arg"], 0x41, 4)

    bench.damage = damage
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 1
    assert (
        "schedule two_pass, pointwise_blocks 16: 1 of 1 elements of bn_num_batches_tracked" in capsys.readouterr().err
    )


def test_a_gpu_for_which_nothing_is_built(spec: Path, emulation_cache: Path) -> None:
    with pytest.raises(SpecError, match="demo has no target sm_100"):
        tune_specs([spec], ONE, Bench(emulation_cache, microseconds).device("sm_100"))


def test_a_dtype_that_the_spec_lacks(spec: Path, emulation_cache: Path) -> None:
    with pytest.raises(SpecError, match="demo has no dtype 'float16'"):
        tune_specs([spec], Options(dtypes=("float16",)), Bench(emulation_cache, microseconds).device())


@pytest.mark.parametrize(
    ("default", "other", "chosen"),
    [
        (Spread(100, 99, 101, 9), Spread(96.5, 96, 97, 9), True),
        (Spread(100, 99, 101, 9), Spread(97.5, 97, 98, 9), False),  # less than 3 %
        (Spread(100, 90, 110, 9), Spread(80, 70, 91, 9), False),  # their quartiles overlap
    ],
)
def test_what_is_clearly_faster(default: Spread, other: Spread, chosen: bool) -> None:
    assert fastest({DEFAULT: default, TWO_PASS: other}) == (TWO_PASS if chosen else DEFAULT)


# As a process


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    words = [sys.executable, "-m", "fusegen", "tune", *map(str, arguments)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    return done


def test_without_a_gpu_it_is_refused(spec: Path) -> None:
    done = run(spec)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[FG503]: torch finds no CUDA device" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "8,none"], "no number of rows: none"),
        (["--rows", "0"], "no number of rows: 0"),
        (["--rows", str(2**31)], "no number of rows: 2147483648"),
        (["--dtypes", "tf32"], "unknown: tf32; there are fp32, bf16, fp16"),
    ],
)
def test_options_that_there_are_not(
    spec: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["tune", str(spec), *arguments])
    assert ended.value.code == 2 and message in capsys.readouterr().err
