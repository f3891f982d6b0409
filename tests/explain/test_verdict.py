"""What a plan says first: expected times beside eager PyTorch's, and whether that pays."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.explain.build import build
from fusegen.explain.module import written
from fusegen.explain.verdict import LEAST_GAIN, verdict
from fusegen.plan.load import plan_file, planned_file

SPECS = Path(__file__).resolve().parents[2] / "specs"


def lines(name: str) -> list[str]:
    return written(planned_file(SPECS / f"{name}.yaml"), None, None, full=False).splitlines()


def test_a_step_is_both_directions_with_the_product() -> None:
    report = build(plan_file(SPECS / "matmul_bn_bias_div_swish.yaml"))
    forward, backward = report.variants[0].totals
    eager, fused = forward.eager + backward.eager, forward.fused + backward.fused
    what, step, first = verdict([report], [forward, backward], {"batch": 1024, "features": 3})
    assert what == "  expected on H100 in float32 at batch 1024, features 3:" and eager > fused > 8000
    assert step == f"    step     {fused / 1e3:.2f} ms, eager PyTorch {eager / 1e3:.2f} ms: 1.02 times as fast"
    assert first.startswith(f"    forward  {forward.fused / 1e3:.2f} ms, eager PyTorch {forward.eager / 1e3:.2f} ms: ")


@pytest.mark.parametrize(("gain", "pays"), [(1.0, False), (1.014, False), (LEAST_GAIN, True), (2.0, True)])
def test_what_does_not_pay(gain: float, pays: bool) -> None:
    report = build(plan_file(SPECS / "gemm_add_relu.yaml"))
    totals = [
        each.model_copy(update={"eager_microseconds": gain * each.fused - (each.eager_product or 0)})
        for each in report.variants[0].totals
    ]
    _, step, forward = verdict([report], totals, report.sizes)
    assert f": {gain:.2f} times as fast" in step and step.endswith(", not worth it here") == (not pays)
    assert not forward.endswith("here")


def test_what_neither_side_has() -> None:
    assert lines("conv2d_batchnorm_scaling")[1].endswith(", out_channels 64, kernel_size 3, without the convolutions:")
    report = build(plan_file(SPECS / "gemm_add_relu.yaml"))
    unknown = [each.model_copy(update={"eager_product": None}) for each in report.variants[0].totals]
    assert verdict([report], unknown, {}, ["gate"])[0].endswith(", without the products and gate:")


def test_what_runs_of_one_region() -> None:
    assert lines("matmul_bn_bias_div_swish")[4:] == [
        "  runs:",
        "    product         aten::addmm in 16 bits, aten::mm in float32",
        "    train_forward   column: 67.4 MB, 1.00 times the floor",
        "    train_backward  column: 101.0 MB, 1.00 times the floor",
        "    eval_forward    pointwise: 67.3 MB, 1.00 times the floor",
        "    eval_backward   pointwise: 101.1 MB, 1.00 times the floor",
        "",
    ]


def test_of_several_regions() -> None:
    found = lines("transformer_mlp_prenorm")
    assert found[1] == "  expected on H100 in float32 at tokens 32768, features 1024, hidden 4096:" and found[
        2
    ].endswith(", not worth it here")
    place = found.index("  transformer_mlp_prenorm_norm")
    assert found[place + 1].startswith("    forward   row: ") and "  returns down_result" in found
    assert not any("because" in line for line in found) and len(found) < 30
