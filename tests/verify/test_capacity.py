"""Sizes that fit a device's memory: what a comparison takes, and what is compared where it takes too much."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import ProfilerActivity, profile  # noqa: E402

from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.modules.plan import Plan  # noqa: E402
from fusegen.plan.sizes.chain_sizes import Sizes, sizes  # noqa: E402
from fusegen.verify.subjects.capacity import EMULATED_BYTES, capacity, comparison_bytes, fitting, training_bytes  # noqa: E402
from fusegen.verify.subjects.subject import Subject  # noqa: E402
from fusegen.verify.suite import Suite  # noqa: E402
from tests.bench.standins import stand_in  # noqa: E402

pytestmark = pytest.mark.torch

HEAD = """\
fusegen: 1
name: {name}
about: A chain of the tests
dims: {{batch: 64, features: 48}}
arguments: {{features: {{type: dim}}}}
inputs: {{x: [batch, features]}}
dtypes: [float32, bfloat16]
chain:
"""
LINEAR = """\
  - {{op: linear, name: fc, out_features: features}}
  - {{op: layer_norm, name: norm}}
"""
SQUARE = HEAD + LINEAR
WIDE = SQUARE.replace("features: 48", "features: 48, width: 32").replace("x: [batch, features]", "x: [batch, width]")
WIDE = WIDE.replace("arguments: {{", "arguments: {{width: {{type: dim}}, ")
ELEMENTS = (
    HEAD
    + """\
  - {{op: mul, parameter: scale, shape: [features], init: randn}}
  - {{op: batch_norm, name: bn}}
  - {{op: silu}}
  - {{op: mul, parameter: other, shape: [features], init: randn}}
"""
)
FLOAT, HALF = 0, 1
GB = 10**9


def plan_of(root: Path, name: str, text: str) -> Plan:
    path = root / f"{name}.yaml"
    path.write_text(text.format(name=name), encoding="utf-8")
    return plan_file(path)


def peak_bytes(work: Callable[[], object], trace: Path) -> int:
    """The most that tensors of the CPU take at a time, as the allocator tells the profiler."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    profiler.export_chrome_trace(str(trace))
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    events.sort(key=lambda event: event["ts"])
    before = events[0]["args"]["Total Allocated"] - events[0]["args"]["Bytes"]
    return max(event["args"]["Total Allocated"] for event in events) - before


@pytest.mark.parametrize("mode", [FLOAT, HALF])
@pytest.mark.parametrize(
    ("text", "shape", "most"),
    [(SQUARE, (3, 1, 701, 1), 1.15), (WIDE, (3, 2001, 301, 1), 1.15), (ELEMENTS, (9001, 1, 24, 1), 1.8)],
    ids=["square", "wide", "elements"],
)
def test_what_is_estimated_is_about_what_is_taken(tmp_path: Path, text: str, shape, most: float, mode: int) -> None:
    subject = stand_in(tmp_path, f"taken_{len(text)}_{mode}", text)
    suite, size = Suite(subject, strict=False), sizes(subject.plan.single, *shape)
    configuration = subject.plan.modes[mode]
    compared = peak_bytes(lambda: suite._numerics(size, configuration, False, True), tmp_path / "trace.json")
    assert 1 <= comparison_bytes(subject.plan, configuration, size) / compared <= most
    trained = peak_bytes(lambda: suite._steps(size, configuration), tmp_path / "trace.json")
    assert 1 <= training_bytes(subject.plan, configuration, size) / trained <= most


def test_a_square_weight_beyond_80_gb_and_within_140(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "square", SQUARE)
    size = sizes(plan, 3, 33, 40001, 1)
    assert 85 * GB < comparison_bytes(module_of(plan), plan.modes[FLOAT], size) < 90 * GB
    assert 70 * GB < comparison_bytes(module_of(plan), plan.modes[HALF], size) < 76 * GB
    # Nearly all of it is the weight's.
    assert comparison_bytes(module_of(plan), plan.modes[FLOAT], sizes(plan, 3, 33, 20001, 1)) < 23 * GB


def test_an_emulated_package_has_a_fixed_budget() -> None:
    assert capacity("cpu") == EMULATED_BYTES


# Sizes in the place of others


def at_most(plan: Plan, available: int) -> Callable[[Sizes], bool]:
    return lambda size: comparison_bytes(module_of(plan), plan.modes[FLOAT], size) <= available


def test_what_fits_stays(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "square", SQUARE)
    size = sizes(plan, 3, 33, 40001, 1)
    assert fitting(plan, size, at_most(plan, 90 * GB), lambda _: pytest.fail("asked")) == size


@pytest.mark.parametrize("available", [79 * GB, 37 * GB, GB])
def test_the_largest_that_fits_takes_the_place(tmp_path: Path, available: int) -> None:
    plan = plan_of(tmp_path, "square", SQUARE)
    size, fits = sizes(plan, 3, 33, 40001, 1), at_most(plan, available)
    found = fitting(plan, size, fits, lambda _: True)
    assert found is not None and found.rows == 3 and found.source == found.channels
    assert fits(found) and not fits(sizes(plan, 3, 33, found.channels + 64, 1))
    assert found.channels % 64 == 40001 % 64  # rows begin within vectors as they did


def test_input_features_go_first_then_channels_then_rows(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "wide", WIDE)
    size, fits = sizes(plan, 1000, 30000, 30000, 1), at_most(plan, 10 * GB)
    found = fitting(plan, size, fits, lambda _: True)
    assert found is not None and (found.rows, found.channels) == (1000, 30000) and found.source < 30000
    asked: list[Sizes] = []
    assert fitting(plan, size, fits, lambda each: asked.append(each)) is None
    assert asked[1].source == 30000 > asked[1].channels and all(map(fits, asked))
    rows = sizes(plan, 10**7, 64, 64, 1)
    found = fitting(plan, rows, fits, lambda each: each.channels == 64)
    assert found is not None and found.source == 64 and found.rows < 10**7 and found.rows % 64 == 10**7 % 64


def test_nothing_takes_the_place_where_no_smaller_size_is_alike_or_fits(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "square", SQUARE)
    size = sizes(plan, 3, 33, 40001, 1)
    assert fitting(plan, size, at_most(plan, 79 * GB), lambda _: False) is None
    assert fitting(plan, size, at_most(plan, 100), lambda _: True) is None


# In a suite


@pytest.fixture(scope="module")
def subject(tmp_path_factory, emulation_cache: Path) -> Subject:
    root = tmp_path_factory.mktemp("capacity")
    plan = stand_in(root, "square_norm", SQUARE).plan
    package = emulate_package(root / "square_norm" / "square_norm", cache=emulation_cache, checked=False)
    return Subject(plan, package, "cpu")


@pytest.mark.nvcc
def test_kernels_of_another_kind_take_no_place(subject: Subject) -> None:
    """Rows that clusters keep in shared memory: there are shorter ones for a GPU with 80 GB, and with 40 GB. Those for
    1 GB fit the registers of a block."""
    size, (full, narrow) = sizes(subject.plan.single, 3, 33, 40001, 1), subject.plan.modes[:2]
    suite = Suite(subject, capacity=79 * GB)
    (found,) = suite._fitting("numerics", [size], full)
    assert 38_000 < found.channels < 40_001 and suite._kernels(found, full) == suite._kernels(size, full)
    assert suite._fitting("numerics", [size], narrow) == [size]
    assert suite.sizes == {f"numerics {size} float32": f"it takes 86.4 GB of 79.0: {found} in its place"}
    suite = Suite(subject, capacity=GB)
    assert suite._fitting("numerics", [size], narrow) == []
    line = "it takes 73.6 GB of 1.0: left out, as no smaller size runs the same kernels"
    assert suite.sizes == {f"numerics {size} bfloat16": line}


@pytest.mark.nvcc
def test_a_report_names_every_size_that_was_not_compared(subject: Subject, monkeypatch) -> None:
    monkeypatch.setattr("fusegen.verify.suite.SMALL", shapes := ((3, 1, 24, 1), (3, 1, 200, 1), (300, 1, 72, 1)))
    mode = subject.plan.modes[FLOAT]
    every = [sizes(subject.plan.single, *shape) for shape in shapes]
    available = comparison_bytes(subject.plan, mode, sizes(subject.plan.single, 3, 1, 100, 1))
    suite = Suite(subject, full=False, capacity=available)
    compared = {finding.shape for finding in suite.numerics(mode)}
    assert str(every[0]) in compared and not {str(size) for size in every[1:]} & compared
    told = {f"numerics {size} {mode.name}" for size in every[1:]}
    assert {key for key in suite.sizes if key.startswith("numerics")} == told
    assert all(line.endswith("in its place") or "left out" in line for line in suite.sizes.values())
