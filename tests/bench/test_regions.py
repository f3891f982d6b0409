"""Modules of several regions, and of several results: their sizes, bytes and products, and rows of a run."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch

import fusegen.bench.bench as bench_module
from fusegen.bench.bench import Bench
from fusegen.bench.bytes import tail_bytes
from fusegen.bench.ceilings import Ceilings
from fusegen.bench.names import EVAL, STEP, TRAIN
from fusegen.bench.options import Options
from fusegen.bench.regions import bytes_of_regions, mode_of, portions, products_work, why_no_precision
from fusegen.bench.schedules import Ran, ran
from fusegen.bench.shapes import sizes_of
from fusegen.plan.load import planned_document, planned_file
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.runtime.importing import import_package
from fusegen.spec.yaml import parse_yaml
from fusegen.verify.subjects.subject import Subject
from tests.bench.standins import ScriptedClock
from tests.bench.test_schedules import Extension, Told
from tests.chains.collection import ENTRIES

# PyTorch makes the product of `gate`: the kernels that read it are behind `up`.
BLOCK = """\
fusegen: 1
name: bench_block
dims: {tokens: 64, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs: {x: [tokens, features]}
dtypes: [float32, bfloat16]
chain:
  - {op: rms_norm, name: norm, save: normed}
  - {op: linear, name: gate, out_features: hidden, bias: false}
  - {op: silu, save: opened}
  - {op: linear, from: normed, name: up, out_features: hidden}
  - {op: mul, value: opened}
  - {op: linear, name: down, out_features: features}
  - {op: add, input: x}
outputs: [result, normed]
"""
PAIR = """\
fusegen: 1
name: bench_pair
dims: {tokens: 64, features: 32}
arguments: {features: {type: dim}}
inputs: {x: [tokens, features], residual: [tokens, features]}
dtypes: [float32]
chain:
  - {op: add, input: residual, save: total}
  - {op: rms_norm, name: norm, eps: 1.0e-6}
outputs: [result, total]
"""


def made(root: Path, name: str, text: str) -> Subject:
    """On the CPU, where it runs PyTorch's own operators."""
    (root / f"{name}.yaml").write_text(text)
    plan = planned_file(root / f"{name}.yaml")
    write_files(render_all([plan]), root / name)
    return Subject(plan, import_package(root / name, name), "cpu")


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return made(tmp_path_factory.mktemp("block"), "bench_block", BLOCK)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return made(tmp_path_factory.mktemp("pair"), "bench_pair", PAIR)


def test_a_shape_is_that_of_the_dims(block: Subject) -> None:
    usual, found = sizes_of(block.plan, "typical"), sizes_of(block.plan, "5x6x7")
    assert (str(usual), str(found)) == ("64x32x48", "5x6x7")
    assert found.symbols == {"tokens": 5, "features": 6, "hidden": 7} and found.rows == 5
    widths = [(part.plan.spec.name, part.sizes.channels) for part in portions(block.plan, _mode(block), found)]
    assert widths == [("bench_block_norm", 6), ("bench_block_up", 7), ("bench_block_down", 6)]
    with pytest.raises(ValueError, match="it takes those of tokens x features x hidden"):
        sizes_of(block.plan, "5x6")


def test_groups_have_to_divide_the_channels(tmp_path: Path) -> None:
    text = BLOCK.replace("bench_block", "bench_block_groups")
    text = text.replace("{op: rms_norm, name: norm,", "{op: group_norm, name: norm, num_groups: 4,")
    (tmp_path / "bench_block_groups.yaml").write_text(text)
    plan = planned_file(tmp_path / "bench_block_groups.yaml")
    assert str(sizes_of(plan, "5x8x7")) == "5x8x7"
    with pytest.raises(ValueError, match="4 groups do not divide 6 channels"):
        sizes_of(plan, "5x6x7")


def _mode(subject: Subject, dtype: str = "float32"):
    mode = mode_of(subject.plan.modes, dtype)
    assert mode is not None
    return mode


def test_bytes_are_those_of_all_regions(block: Subject) -> None:
    size = sizes_of(block.plan, "typical")
    for dtype, width in (("float32", 4), ("bfloat16", 2)):
        forward, backward = bytes_of_regions(block.plan, _mode(block, dtype), size, STEP)
        parts = [tail_bytes(*part, STEP) for part in portions(block.plan, _mode(block, dtype), size)]
        assert (forward, backward) == (sum(each[0] for each in parts), sum(each[1] for each in parts))
        # What is of full size: the norm reads and writes one. Two products become one result; one and x become one.
        features, hidden, vectors = 64 * 32 * width, 64 * 48 * width, 64 * 4 + 200 * width
        assert 0 < forward - (2 + 3) * features - 3 * hidden < vectors
        # Of the norm x, the gradient that comes, and that of x. Of the gate both products, what comes, two gradients.
        # Behind `down` what comes is read, and nothing written: both gradients are the one that comes.
        assert 0 < backward - (3 + 1) * features - 5 * hidden < 2 * vectors


def test_the_products_alone(block: Subject) -> None:
    size = sizes_of(block.plan, "5x6x7")
    for dtype, biases in ((torch.float32, 0), (torch.bfloat16, 2)):
        mode = _mode(block, str(dtype).removeprefix("torch."))
        _, original, inputs = block.pair(size, mode, seed=1)
        calls = []
        linear = torch.nn.functional.linear

        def counted(x, weight, bias, calls=calls, linear=linear):
            calls.append((tuple(x.shape), tuple(weight.shape), bias is not None))
            return linear(x, weight, bias)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.nn.functional, "linear", counted)
            products_work(block.plan, mode, size, original, inputs, torch.empty(0), EVAL).call()
            assert [call[:2] for call in calls] == [((5, 6), (7, 6))] * 2 + [((5, 7), (6, 7))]
            assert sum(call[2] for call in calls) == biases
        work = products_work(block.plan, mode, size, original, inputs, torch.empty(0), STEP)
        shapes = [tuple(map(lambda each: tuple(each.shape), one)) for one in work.call()]
        assert shapes == [((5, 7), (5, 6), (7, 6))] * 2 + [((5, 6), (5, 7), (6, 7))]


@pytest.mark.parametrize("name", ["block", "pair"])
def test_rows_of_a_run(name: str, block: Subject, pair: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = {"block": block, "pair": pair}[name]
    results = []
    work = bench_module.module_work

    def recorded(module, *arguments, **options):
        results.append(type(module(*arguments[0])))
        return work(module, *arguments, **options)

    monkeypatch.setattr(bench_module, "module_work", recorded)
    monkeypatch.setattr(
        bench_module, "make_peer", lambda name, module, _: module if name == "eager" else Wrapped(module)
    )
    clock = ScriptedClock((2.0, 10.0, 15.0, 20.0, 16.0) if name == "block" else (2.0, 15.0, 20.0, 16.0))
    options = Options(against=("eager", "compile"), dtypes=("fp32",))
    run = Bench(clock, Ceilings(3000.0, {}), options, "", "", lambda rows: None, lambda line: None)
    run.measure(subject, sizes_of(subject.plan, "typical"), "fp32")
    assert not run.wrong and not run.problems
    assert [row.mode for row in run.rows[:: len(run.rows) // 3]] == [EVAL, TRAIN, STEP]
    for row in (row for row in run.rows if row.subject == "fused"):
        assert (row.tail_ms, row.shape) == ((5.0, "64x32x48") if name == "block" else (15.0, "64x32"))
        assert row.schedule == "none" and "cpu" in row.launches
    assert set(results) == {tuple}  # nothing puts results beside each other where time is taken


class Wrapped(torch.nn.Module):
    """As torch.compile does it: a copy below a name of its own."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._orig_mod = copy.deepcopy(module)

    def forward(self, *inputs: torch.Tensor):
        return self._orig_mod(*inputs)


def test_a_wrong_result_of_several_is_not_timed(pair: Subject) -> None:
    fused = pair.package.BenchPair
    wrong = type("BenchPair", (fused,), {"forward": lambda self, *x: (*self.fusegen_reference(*x)[:1], x[0])})
    package = type(pair.package)(pair.package.__name__)
    package.BenchPair = wrong
    clock = ScriptedClock()
    run = Bench(clock, Ceilings(3000.0, {}), Options(against=("eager",)), "", "", lambda rows: None, lambda line: None)
    run.measure(Subject(pair.plan, package, "cpu", pair.original_class), sizes_of(pair.plan, "typical"), "fp32")
    assert not run.rows and not clock.calls and len(run.wrong) == 1 and "output" in run.wrong[0]


def test_a_precision_that_the_module_does_not_have(block: Subject) -> None:
    run = Bench(ScriptedClock(), Ceilings(1.0, {}), Options(), "", "", lambda rows: None, lambda line: None)
    run.measure(block, sizes_of(block.plan, "typical"), "fp32_split")
    assert not run.rows and "PyTorch makes the product of a layer" in run.problems[0]


def test_each_region_says_what_it_ran(block: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    extensions = [Extension() for _ in range(3)]
    for name, each in zip(("norm", "up", "down"), extensions, strict=True):
        package = getattr(block.package, f"_region_{name}").__module__
        monkeypatch.setitem(sys.modules, f"{package}._C", each)
    size = sizes_of(block.plan, "5x6x7")
    found = ran(block, _mode(block), size, STEP, Told(), [torch.zeros(1)])
    assert found == Ran(" / ".join([", ".join(["two_pass"] * 3), ", ".join(["row"] * 3)]), found.launches)
    assert [[call[2:4] for call in each.asked] for each in extensions] == [[(5, 6)] * 2, [(5, 7)] * 2, [(5, 6)] * 2]


DOWN = """\
fusegen: 1
name: bench_down
dims: {batch: 4, channels: 6, wider: 8, height: 9, width: 8}
arguments: {channels: {type: dim}, wider: {type: dim}}
inputs: {x: [batch, channels, height, width]}
dtypes: [float32]
chain:
  - {op: conv2d, name: conv1, out_channels: wider, kernel_size: 3, stride: 2, padding: 1, bias: false}
  - {op: relu}
  - {op: linear, name: over, out_features: wider, bias: false}
  - {op: relu, save: main}
  - {op: conv2d, from: x, name: down, out_channels: wider, kernel_size: 1, stride: 2, bias: false}
  - {op: add, value: main}
"""


def test_of_images_each_layer_has_its_own_positions(tmp_path: Path) -> None:
    subject = made(tmp_path, "bench_down", DOWN)
    size = sizes_of(subject.plan, "2x3x4x7x5")
    rows = [each.sizes.rows for each in portions(subject.plan, _mode(subject), size)]
    assert rows == [2 * 4 * 3] * 2 and size.symbols["height_2"] == 4
    _, original, inputs = subject.pair(size, _mode(subject), 1)
    forward = products_work(subject.plan, _mode(subject), size, original, inputs, inputs[0], EVAL).call()
    assert [tuple(each.shape) for each in forward] == [(2, 4, 4, 3), (24, 4), (2, 4, 4, 3)]
    step = products_work(subject.plan, _mode(subject), size, original, inputs, inputs[0], STEP).call()
    assert [tuple(each.shape) for each in step[0]] == [(2, 3, 7, 5), (4, 3, 3, 3)]
    forward, backward = bytes_of_regions(subject.plan, _mode(subject), size, STEP)
    result = 2 * 4 * 4 * 3 * 4
    # Each kernel reads what its layer has made and writes its result; the last one reads another product, too.
    assert 0 <= forward - 5 * result < 300


HEAD = """\
fusegen: 1
name: of_called
dims: {batch: 4, width: 32%s}
arguments: {width: {type: dim}}
inputs: {x: [batch, width%s]}
chain: [{op: relu}, %s]
"""


def test_sizes_behind_what_pytorch_calls() -> None:
    """Pooling makes channels that the spec has no symbol for; groups divide the channels of a norm that it calls."""
    text = HEAD % ("", "", "{op: avg_pool1d, name: pool, kernel_size: 4}, {op: softmax}")
    assert sizes_of(planned_document(parse_yaml(text, "of_called.yaml")), "3x12").symbols["width_2"] == 3
    text = HEAD % (", positions: 9", ", positions", "{op: group_norm, name: norm, num_groups: 4}")
    plan = planned_document(parse_yaml(text, "of_called.yaml"))
    assert str(sizes_of(plan, "3x8x5")) == "3x8x5"
    with pytest.raises(ValueError, match="4 groups do not divide 6 channels"):
        sizes_of(plan, "3x6x5")


def test_of_images_and_rows(tmp_path: Path) -> None:
    """Layers of what PyTorch makes of images; its bytes count where it has no product."""
    entry = ENTRIES["se_block"]
    subject = made(tmp_path, "se_block", entry.text(["float32"]))
    size = sizes_of(subject.plan, "2x6x4x5x7")
    _, original, inputs = subject.pair(size, _mode(subject), 1)
    forward = products_work(subject.plan, _mode(subject), size, original, inputs, inputs[0], EVAL).call()
    reduced = size.symbols["reduced"]
    assert [tuple(each.shape) for each in forward] == [(2, reduced), (2, 6)]
    parts = [tail_bytes(*part, STEP) for part in portions(subject.plan, _mode(subject), size)]
    found = bytes_of_regions(subject.plan, _mode(subject), size, STEP)
    assert found == tuple(sum(part[side] for part in parts) for side in (0, 1))
    assert bytes_of_regions(subject.plan, _mode(subject), size, EVAL) == found[:1]


def test_why_no_precision_is_chosen(tmp_path: Path) -> None:
    """Of convolutions there is no matrix product, however many there are."""
    path, reasons = tmp_path / "bench_down.yaml", []
    others = [line for line in DOWN.splitlines(keepends=True) if "linear" not in line]
    for text in (DOWN, "".join(others)):
        path.write_text(text)
        reasons.append(why_no_precision(planned_file(path)))
    alone = "PyTorch makes the product of a layer that is a region alone"
    assert reasons == [alone, "the chain has no matrix product"]
