"""A run: what it checks, what it times, what it leaves out and says, and the rows that come of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import fusegen.bench.bench as bench_module
import fusegen.bench.peers as peers
from fusegen.bench.bench import Bench
from fusegen.bench.ceilings import Ceilings, measure_ceilings
from fusegen.bench.names import EVAL, STEP, TRAIN
from fusegen.bench.options import Options
from fusegen.bench.rows import Row
from fusegen.bench.shapes import sizes_of
from fusegen.errors import FusegenError
from fusegen.plan.sizes.chain_sizes import typical
from fusegen.verify.subjects.subject import Subject
from tests.bench.standins import GROUPS, ScriptedClock, stand_in
from tests.verify.chains import emulated

# copy, contraction, fused, eager, compile
SCRIPT = (2.0, 10.0, 15.0, 20.0, 16.0)


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return stand_in(tmp_path_factory.mktemp("linear"), "bench_demo")


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the original stand in for compiled peers: tracing takes seconds."""
    monkeypatch.setattr(
        bench_module, "make_peer", lambda name, original, _: original if name == "eager" else copy.deepcopy(original)
    )


def bench(clock: ScriptedClock | None = None, **changes) -> Bench:
    options = {"against": ("eager", "compile"), "dtypes": ("fp32",)}
    options |= {name: changes.pop(name) for name in list(changes) if name in Options.__dataclass_fields__}
    parts = {
        "clock": clock or ScriptedClock(SCRIPT),
        "ceilings": Ceilings(3000.0, {"fp32": 50.0}),
        "options": Options(**options),
        "command": "fusegen bench specs",
        "run": "2026-01-01T00:00:00Z",
        "write": lambda rows: None,
        "say": lambda line: None,
    }
    return Bench(**{**parts, **changes})


def by_subject(rows: list[Row], mode: str) -> dict[str, Row]:
    return {row.subject: row for row in rows if row.mode == mode}


def broken(subject: Subject, forward: Callable) -> Subject:
    """The subject with another forward in the place of the generated one, and the original that it had."""
    cls = type(subject.fused_class.__name__, (subject.fused_class,), {"forward": forward})
    package = type(subject.package)(subject.package.__name__)
    setattr(package, subject.plan.spec.class_name, cls)
    return Subject(subject.plan, package, "cpu", subject.original_class)


def test_a_precision_of_the_fused_module_alone(linear: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    precisions = []
    work = bench_module.module_work

    def record(module: nn.Module, *arguments, **options):
        precisions.append(getattr(module, "fusegen_precision", None))
        return work(module, *arguments, **options)

    monkeypatch.setattr(bench_module, "module_work", record)
    run = bench(ScriptedClock((2.0, 5.0, 20.0, 16.0)), modes=(TRAIN,))
    run.measure(linear, typical(linear.plan.single), "fp32_split")
    assert not run.wrong and not run.problems
    assert precisions == [
        "fp32_split",
        "ieee",
        "ieee",
    ]  # peers are the same class
    rows = by_subject(run.rows, TRAIN)
    assert list(rows) == ["copy", "fused", "eager", "compile"] and rows["fused"].dtype == "fp32_split"
    # Its product is not the library's, so there is no time of the tail alone.
    assert rows["fused"].device_ratio == 5 / 16 and rows["fused"].tail_ms is None


def test_a_chain_without_a_product_has_no_precision_of_it(tmp_path: Path) -> None:
    run = bench()
    run.measure(stand_in(tmp_path, "bench_groups_split", GROUPS), None, "fp32_split")
    assert run.problems and "has no matrix product" in run.problems[0] and not run.rows


def test_rows_of_a_run(linear: Subject) -> None:
    written, said = [], []
    run = bench(write=written.append, say=said.append)
    run.measure(linear, typical(linear.plan.single), "fp32")
    assert not run.wrong and not run.problems
    # As they come, mode by mode.
    assert [rows[0].mode for rows in written] == [EVAL, TRAIN, STEP] and sum(written, []) == run.rows
    assert len(said) == 3 and "fused 15 ms, best peer compile 16 ms (ratio 0.938), tail 2.50 of the floor" in said[2]
    # The stand-in is for a GPU, and its inputs are not there.
    assert all("schedule none (PyTorch's operators: " in line for line in said)
    for mode in (EVAL, TRAIN, STEP):
        rows = by_subject(run.rows, mode)
        assert list(rows) == ["copy", "contraction", "fused", "eager", "compile"]
        for row in rows.values():
            assert (row.floor_ms, row.contraction_ms) == (2.0, 10.0)
            assert (row.spec, row.shape, row.dtype, row.gpu) == ("bench_demo", "64x32x48", "fp32", "NVIDIA Test")
            assert (row.targets, row.command, row.seed) == ("sm_90 sm_100", "fusegen bench specs", 0)
            assert (row.copy_gb_s, row.contraction_tflop_s, row.wall_us) == (3000.0, 50.0, 100.0)
        fused, eager = rows["fused"], rows["eager"]
        assert (fused.device_ms, fused.tail_ms, fused.tail_over_floor) == (15.0, 5.0, 2.5)
        assert fused.device_ratio == 15 / 16 and eager.device_ratio == 20 / 16 and fused.wall_ratio == 1.0
        assert fused.schedule == "none" and "cpu" in fused.launches and not eager.schedule + eager.launches
        assert rows["copy"].tail_ms is None and rows["contraction"].device_ratio is None
    bytes_ = {mode: by_subject(run.rows, mode)["fused"].tail_bytes for mode in (EVAL, TRAIN, STEP)}
    assert 0 < bytes_[EVAL] < bytes_[TRAIN] < bytes_[STEP]


def test_only_the_modes_and_dtypes_that_were_asked_for(linear: Subject) -> None:
    run = bench(modes=(STEP,), against=("eager",))
    run.measure(linear, sizes_of(linear.plan, "8x4x6"), "bf16")
    run.measure(linear, sizes_of(linear.plan, "8x4x6"), "fp16")
    assert {(row.shape, row.dtype, row.mode) for row in run.rows} == {("8x4x6", "bf16", STEP)}
    assert run.problems == ["bench_demo 8x4x6 fp16: the spec has no float16"] and not run.wrong


def test_without_a_contraction_the_chain_is_the_tail(tmp_path: Path) -> None:
    subject = stand_in(tmp_path, "bench_alone", GROUPS)
    run = bench(ScriptedClock((2.0, 3.0, 4.0)), against=("eager",))
    run.measure(subject, typical(subject.plan.single), "fp32")
    assert not run.wrong and not run.problems
    for mode in (EVAL, TRAIN, STEP):
        rows = by_subject(run.rows, mode)
        assert list(rows) == ["copy", "fused", "eager"]
        fused = rows["fused"]
        assert (fused.contraction_ms, fused.tail_ms, fused.tail_over_floor) == (0.0, 3.0, 1.5)


def wrong_in_training(self, x):
    return self.fusegen_reference(x) * (1.01 if self.training else 1)


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda self, x: self.fusegen_reference(x) * 1.01, "output"),
        (lambda self, x: self.fusegen_reference(x.detach()) + 0 * x.sum(), "grad input"),
        (wrong_in_training, "in training"),
        (lambda self, x: self.fusegen_reference(x).double(), "dtypes and shapes"),
        (lambda self, x: x.nonsense, "AttributeError"),
    ],
)
def test_what_is_wrong_is_not_timed(linear: Subject, forward: Callable, expected: str) -> None:
    clock = ScriptedClock(SCRIPT)
    run = bench(clock, against=("eager",))
    run.measure(broken(linear, forward), typical(linear.plan.single), "fp32")
    assert not run.rows and not clock.calls
    assert len(run.wrong) == 1 and expected in run.wrong[0] and "bench_demo 64x32x48 fp32" in run.wrong[0]


def test_training_is_not_checked_where_it_is_not_timed(linear: Subject) -> None:
    subject = broken(linear, wrong_in_training)
    run = bench(modes=(EVAL,), against=("eager",))
    run.measure(subject, typical(linear.plan.single), "fp32")
    assert run.rows and not run.wrong


def test_a_peer_that_fails_is_named_and_the_others_go_on(linear: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: str, original: nn.Module, backend: str | None) -> nn.Module:
        if name == "max-autotune":
            raise RuntimeError("no\n  kernel")
        if name == "reduce-overhead":
            return nn.Sequential(original, nn.Hardtanh(-0.1, 0.1))
        return original

    monkeypatch.setattr(bench_module, "make_peer", make)
    run = bench(ScriptedClock(SCRIPT[:4]), against=("max-autotune", "reduce-overhead", "eager"))
    run.measure(linear, typical(linear.plan.single), "fp32")
    assert not run.wrong and {row.subject for row in run.rows} == {"copy", "contraction", "fused", "eager"}
    failed, wrong = run.problems
    assert failed == "bench_demo 64x32x48 fp32 max-autotune: RuntimeError: no kernel"
    assert "reduce-overhead: not timed, wrong: " in wrong and "output" in wrong


def test_a_peer_of_another_dtype_is_wrong(linear: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wide(nn.Module):
        def __init__(self, original: nn.Module) -> None:
            super().__init__()
            self._orig_mod = original  # named as torch.compile names it

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self._orig_mod(x).double()

    monkeypatch.setattr(bench_module, "make_peer", lambda name, original, _: Wide(copy.deepcopy(original)))
    run = bench(ScriptedClock(SCRIPT[:3]), against=("compile",), modes=(EVAL,))
    run.measure(linear, typical(linear.plan.single), "fp32")
    assert "dtypes and shapes" in run.problems[0] and not run.wrong
    assert {row.subject for row in run.rows} == {"copy", "contraction", "fused"}


def test_a_fused_module_that_fails_while_it_is_timed_is_wrong(linear: Subject) -> None:
    calls = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        calls.append(None)
        if len(calls) > 12:
            raise RuntimeError("launch failed")
        return self.fusegen_reference(x)

    run = bench(ScriptedClock((2.0, 10.0, 20.0)), against=("eager",), modes=(TRAIN,))
    run.measure(broken(linear, forward), typical(linear.plan.single), "fp32")
    assert run.wrong == ["bench_demo 64x32x48 fp32 train-forward fused: RuntimeError: launch failed"]
    assert {row.subject for row in run.rows} == {"copy", "contraction", "eager"}


def test_after_the_limit_compiled_peers_are_left_out_by_name(linear: Subject) -> None:
    run = bench(ScriptedClock(SCRIPT[:4]), limit=10.0, now=iter([0.0, 11.0]).__next__, modes=(EVAL,))
    # Eager takes the time of its building too.
    run.now = iter([11.0, 11.0, 11.0]).__next__
    run.measure(linear, typical(linear.plan.single), "fp32")
    assert run.problems == ["bench_demo 64x32x48 fp32 compile: left out, out of time"] and not run.wrong
    assert {row.subject for row in run.rows} == {"copy", "contraction", "fused", "eager"}


def test_a_peer_that_would_run_into_the_limit_is_not_begun(linear: Subject) -> None:
    # It began at 0; compile is built from 1 to 5, and at 7 another 4 seconds would be too long.
    run = bench(against=("compile",), limit=10.0, now=iter([0.0, 1.0, 1.0, 5.0, 7.0]).__next__, modes=(EVAL,))
    for shape in ("8x4x6", "16x4x6"):
        run.measure(linear, sizes_of(linear.plan, shape), "fp32")
    assert run.problems == ["bench_demo 16x4x6 fp32 compile: left out, out of time"]
    assert [row.shape for row in run.rows if row.subject == "compile"] == ["8x4x6"]


def test_a_peer_is_compiled_while_it_is_checked_and_never_again(
    linear: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "make_peer", peers.make_peer)
    compiled, checked = CompileCounter(), []
    run = bench(
        ScriptedClock(SCRIPT[:4]),
        against=("compile",),
        backend=compiled,
        write=lambda rows: checked.append(compiled.frame_count),
    )
    run.measure(linear, sizes_of(linear.plan, "8x4x6"), "fp32")
    # Once in evaluation without gradients, once in training; all three modes use these.
    assert not run.problems and checked == [2, 2, 2]


def test_tf32_is_on_for_tf32_alone_and_put_back(linear: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    plain = bench_module.measure
    monkeypatch.setattr(
        bench_module,
        "measure",
        lambda *what: seen.append(torch.backends.cuda.matmul.allow_tf32) or plain(*what),
    )
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for set_before in (True, False):
            torch.backends.cuda.matmul.allow_tf32 = set_before
            run = bench(modes=(EVAL,), against=("eager",))
            for precision in ("fp32", "tf32", "bf16"):
                run.measure(linear, sizes_of(linear.plan, "8x4x6"), precision)
                assert torch.backends.cuda.matmul.allow_tf32 is set_before
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert seen == [False, True, False] * 2


def test_rows_that_cannot_be_written_end_the_run(linear: Subject) -> None:
    def write(rows: list[Row]) -> None:
        raise FusegenError("the disk is full")

    with pytest.raises(FusegenError, match="full"):
        bench(write=write, against=("eager",)).measure(linear, sizes_of(linear.plan, "8x4x6"), "fp32")


def test_ceilings() -> None:
    clock = ScriptedClock((0.001,))
    found = measure_ceilings(clock, "cpu", ("fp32", "bf16"), copied=4_000_000, extent=16)
    assert found.copy == pytest.approx(4e6 / 1e-6 / 1e9)
    assert found.contraction == pytest.approx({name: 2 * 16**3 / 1e-6 / 1e12 for name in ("fp32", "bf16")})


@pytest.mark.nvcc
def test_emulated_kernels_are_timed(tmp_path: Path, emulation_cache: Path) -> None:
    subject = emulated(tmp_path, emulation_cache, "bench_emulated")
    run = bench(against=("eager",), clock=ScriptedClock(SCRIPT[:4]))
    run.measure(subject, sizes_of(subject.plan, "9x5x7"), "fp32")
    assert not run.wrong and list(by_subject(run.rows, STEP)) == ["copy", "contraction", "fused", "eager"]
    found = {row.mode: row for row in run.rows if row.subject == "fused"}
    # The columns of few rows stay on chip; with running statistics there is nothing to sum.
    schedules = {EVAL: "pointwise", TRAIN: "column", STEP: "column / column"}
    assert {mode: row.schedule for mode, row in found.items()} == schedules
    for mode, row in found.items():
        kernels = [launch.split(" of ")[0].split() for launch in row.launches.split(" / ")]
        assert [kernel for kernel, blocks in kernels if int(blocks.split("x")[0]) > 0] == schedules[mode].split(" / ")
