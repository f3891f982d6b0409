"""Expected times beside those that were measured: benchmarks/results has large shapes on an H100."""

from __future__ import annotations

import csv
import functools
import math
import re
from pathlib import Path

import pytest

from fusegen.errors import SpecError
from fusegen.explain.build import build
from fusegen.explain.model import Report
from fusegen.explain.times import LEAST, product_route
from fusegen.explain.wording import size, time
from fusegen.plan.load import plan_document
from fusegen.spec.yaml import parse_yaml
from tests.plan.planning import LINEAR, planned

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
LINES = [
    line
    for name in ("bench_h100_split.csv", "bench_h100_epilogue.csv")
    for line in csv.DictReader((RESULTS / name).open(encoding="utf-8"))
    if line["subject"] in ("fused", "eager") and math.prod(map(int, line["shape"].split("x"))) > 1 << 34
]


@functools.cache
def report(spec: str, shape: str) -> Report:
    """Of a committed spec at a shape, in fp32_split."""
    text = (ROOT / "specs" / f"{spec}.yaml").read_text(encoding="utf-8")
    for name, extent in zip(("batch", "in_features", "out_features"), shape.split("x"), strict=True):
        text = re.sub(rf"(?m)^(  {name}): \d+", rf"\1: {extent}", text)
    if "precision" not in text:
        text = text.replace("op: linear,", "op: linear, precision: fp32_split,")
    found = build(plan_document(parse_yaml(text, f"{spec}.yaml")))
    assert found.shape == shape and found.device.name == "H100"
    return found


def splitting_the_weight(shape: str) -> float:
    """Microseconds, which modules in evaluation do not take where they are measured: they keep the pieces of their
    weight (fusegen_keep_pieces)."""
    route, (rows, features, channels) = product_route(), map(int, shape.split("x"))
    each, kept = (
        route.split_times(route.SPEEDS[9, 0], 132, rows, channels, features, weight_kept=kept)[0]
        for kept in (False, True)
    )
    return each - kept


def ratio(line: dict[str, str]) -> float | None:
    """The expected time over the measured one; None where the report has no evaluation of its own."""
    found = report(line["spec"], line["shape"])
    evaluation = line["mode"] == "eval-forward"
    if evaluation and len(found.variants) == 1:
        return None
    forward, backward = found.variants[-1 if evaluation else 0].totals
    side = line["subject"]
    expected = getattr(forward, side) + (getattr(backward, side) if line["mode"].endswith("backward") else 0)
    if evaluation and side == "fused":
        expected -= splitting_the_weight(line["shape"])
    return expected / (1000 * float(line["device_ms"]))


@pytest.mark.parametrize(("subject", "least", "most"), [("eager", 0.93, 1.02), ("fused", 0.75, 1.2)])
def test_expected_times_are_near_measured_ones(subject: str, least: float, most: float) -> None:
    """Eager PyTorch takes hardly less than is expected of it: some of its kernels read an operand twice."""
    found = [each for line in LINES if line["subject"] == subject and (each := ratio(line)) is not None]
    assert len(found) > 15
    assert least < min(found) and max(found) < most


def test_training_steps_are_expected_within_a_tenth() -> None:
    found = [ratio(line) for line in LINES if line["mode"] == "train-forward-backward"]
    assert len(found) >= 10 and all(each is not None and 0.95 < each < 1.1 for each in found)


def test_the_least_time_of_a_kernel_is_one_that_was_measured() -> None:
    lines = csv.DictReader((RESULTS / "kernel_times_h200.csv").open(encoding="utf-8"))
    tiny = [float(line["us"]) for line in lines if 0 < int(line["bytes"]) < 200_000]
    assert min(tiny) <= LEAST <= sorted(tiny)[len(tiny) // 2]


def test_few_rows_take_what_reading_the_weight_takes() -> None:
    found = report("gemm_multiply_leakyrelu", "16x8192x8192")
    (forward, backward) = found.variants[0].totals
    moved = 4 * (16 * 8192 + 8192 * 8192 + 16 * 8192)
    assert forward.eager_product == pytest.approx(moved / 3e12 * 1e6, rel=1e-4)
    assert backward.eager_product == pytest.approx(2 * moved / 3e12 * 1e6, rel=1e-4)
    # Splitting the weight would take longer than the product: modules leave it to the library.
    assert forward.fused_made_by == "aten::mm" and forward.fused_product == forward.eager_product
    assert found.variants[0].programs[0].taken == "pointwise"


def test_few_rows_are_split_in_evaluation_without_gradients_alone(tmp_path: Path) -> None:
    """Sums over 176 rows, which are those of the weight's gradient, are too short for tensor cores."""
    norm = "op: batch_norm, name: bn"
    planned(tmp_path, f"{LINEAR}, precision: fp32_split", norm, dtypes="float32")
    text = (tmp_path / "spec.yaml").read_text()
    for name, extent in (("batch", 176), ("width", 8192), ("hidden", 8192)):
        text = re.sub(rf"\b{name}: \d+", f"{name}: {extent}", text)
    train, evaluation = build(plan_document(parse_yaml(text, "spec.yaml"))).variants
    assert [total.fused_made_by for total in train.totals] == ["aten::mm", "aten::mm"]
    forward, backward = evaluation.totals
    assert (forward.fused_made_by, backward.fused_made_by) == ("pieces of fp16", "aten::mm")
    assert forward.fused_product < forward.eager_product and backward.fused_product == backward.eager_product


def test_a_gpu_whose_products_nobody_has_measured(tmp_path: Path) -> None:
    found = build(planned(tmp_path, LINEAR, "op: relu", targets="sm_75"))
    assert found.device.name == "T4" and found.device.float32_tflop_s is None
    assert all(total.eager_product is None for total in found.variants[0].totals)
    assert "nobody has measured products on T4: times are those of what follows the product" in found.estimates


def test_products_in_16_bits_and_of_rounded_operands(tmp_path: Path) -> None:
    """64 TFLOP/s, or a tenth of that in float32; rounding reads 4 bytes of an element and writes 2."""
    sizes = {"batch: 16": "batch: 4096", "width: 32": "width: 4096", "hidden: 64": "hidden: 4096"}

    def totals(dtypes: str, precision: str):
        planned(tmp_path, f"{LINEAR}, precision: {precision}", "op: relu", dtypes=dtypes)
        text = (tmp_path / "spec.yaml").read_text()
        for before, after in sizes.items():
            text = text.replace(before, after)
        return build(plan_document(parse_yaml(text, "spec.yaml"))).variants[0].totals[0]

    narrow, wide, rounded = totals("bfloat16", "ieee"), totals("float32", "ieee"), totals("float32", "bf16")
    operations = 2 * 4096**3
    assert narrow.eager_product == narrow.fused_product == pytest.approx(operations / 640e6, rel=1e-3)
    assert wide.eager_product == wide.fused_product == pytest.approx(operations / 51e6, rel=1e-3)
    assert rounded.eager_product == wide.eager_product
    rounding = 6 * 2 * 4096**2 / 2.8e6
    assert rounded.fused_product == pytest.approx(operations / 640e6 + rounding, rel=1e-3)
    assert narrow.eager_made_by == narrow.fused_made_by == "aten::addmm"
    assert (wide.eager_made_by, wide.fused_made_by) == ("aten::addmm", "aten::mm")
    assert rounded.fused_made_by == "operands of bf16"


def test_times_on_another_target_of_the_spec(tmp_path: Path) -> None:
    """An A100 has the lower bandwidth and no kernel of ours for split products, so nothing runs in its epilogue."""
    plan = planned(tmp_path, f"{LINEAR}, precision: fp32_split", "op: relu", targets="sm_80, sm_90a")
    assert build(plan).device.name == "H100"
    found = build(plan, target="sm_80")
    assert (found.device.name, found.device.target, found.device.bandwidth_gb_s) == ("A100", "sm_80", 1400)
    forward = found.variants[0].programs[0]
    assert forward.taken == "pointwise"
    assert forward.floor_microseconds == pytest.approx(forward.floor_bytes / 1400e9 * 1e6, rel=1e-3)
    assert found.estimates[0].startswith("a kernel takes its bytes over 1400 GB/s, what a copy reaches on A100")
    with pytest.raises(SpecError, match="demo has no target 'sm_89'"):
        build(plan, target="sm_89")


def test_figures_have_units_that_suit_them() -> None:
    assert [size(count) for count in (0, -256, 32_768, 67.1e6, 9.5e9, 1.64e11)] == [
        "0 B", "-256 B", "32.8 kB", "67.1 MB", "9500.0 MB", "164.0 GB",
    ]  # fmt: skip
    assert [time(us) for us in (0, 0.071, 22.4, 2690, 53_900, 2.5e7)] == [
        "0.0 us", "0.071 us", "22.4 us", "2.69 ms", "53.9 ms", "25.0 s",
    ]  # fmt: skip
