"""What PyTorch moves for steps that it calls between regions, against arithmetic done by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusegen.explain import module
from fusegen.explain.build import build
from fusegen.explain.choices import Question
from fusegen.plan.load import planned_document
from fusegen.plan.sizes.called_bytes import called_bytes
from fusegen.plan.sizes.module_sizes import module_typical
from fusegen.spec.yaml import parse_yaml
from tests.explain.test_page import Reader
from tests.explain.test_regions import said

IMAGE, CHANNELS = 2 * 4 * 6 * 5, 4  # elements
HALF = 2 * 4 * 3 * 2  # behind pooling
HEAD = """\
fusegen: 1
name: demo
dims: {batch: 2, channels: 4, height: 6, width: 5}
arguments: {channels: {type: dim}, height: {type: dim}, width: {type: dim}}
inputs: {x: [batch, channels, height, width]}
chain:
"""
# Of each step the elements that it moves forward and backward, and of these the indices.
CASES = {
    "instance_norm, name: n, affine: true, track_running_stats: true": (
        *(2 * IMAGE + 2 * CHANNELS, 3 * IMAGE + 3 * CHANNELS, 0),
    ),
    "instance_norm, name: n, track_running_stats: true": (2 * IMAGE, 3 * IMAGE, 0),
    "softmax, dim: 2": (2 * IMAGE, 3 * IMAGE, 0),
    "normalize, dim: 2": (2 * IMAGE, 3 * IMAGE, 0),
    "sum, dim: 2, keepdim: true": (IMAGE + 2 * 4 * 5, 0, 0),
    "mean, dim: 2, keepdim: false": (IMAGE + 2 * 4 * 5, IMAGE + 2 * 4 * 5, 0),
    "var, dim: 2, keepdim: true": (IMAGE + 2 * 4 * 5, 2 * IMAGE + 2 * 4 * 5, 0),
    "max, dim: 2, keepdim: true": (IMAGE + 2 * 4 * 5, IMAGE + 2 * 4 * 5, 2 * 4 * 5),
    "max_pool2d, name: p, kernel_size: 2": (IMAGE + HALF, IMAGE + HALF, HALF),
    "adaptive_max_pool2d, name: p, output_size: 1": (IMAGE + 8, IMAGE + 8, 8),
    "adaptive_avg_pool2d, name: p, output_size: [1, 2]": (IMAGE + 16, IMAGE + 16, 0),
    "avg_pool2d, name: p, kernel_size: 2": (IMAGE + HALF, IMAGE + HALF, 0),
    "lp_pool2d, name: p, kernel_size: 2, norm_type: 2.0": (IMAGE + HALF, 2 * IMAGE + HALF, 0),
    "upsample, name: u, scale_factor: 2": (5 * IMAGE, 5 * IMAGE, 0),
    "pixel_shuffle, name: u, upscale_factor: 2": (2 * IMAGE, 2 * IMAGE, 0),
    "narrow, start: 1, length: 2": (0, IMAGE + IMAGE // 2, 0),
    "cat, values: [x]": (4 * IMAGE, 4 * IMAGE, 0),
    "flatten": (0, 0, 0),
}


def planned(step: str, first: str = "batch_norm, name: bn"):
    return planned_document(parse_yaml(f"{HEAD}  - {{op: {first}}}\n  - {{op: {step}}}\n", "demo.yaml"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("step", CASES)
def test_bytes(step: str, dtype: str) -> None:
    forward, backward, indices = CASES[step]
    plan, width = planned(step), {"float32": 4, "bfloat16": 2}[dtype]
    found = called_bytes(plan, plan.regions[1], module_typical(plan).symbols, dtype)
    assert found == (width * forward + 8 * indices, width * backward + 8 * indices)


def test_totals_have_them_on_both_sides() -> None:
    step = "instance_norm, name: n, affine: true, track_running_stats: true"
    plan = planned(step)
    whole, reports = module.reported(plan, None, None)
    forward, backward, _ = CASES[step]
    assert whole is not None and not whole.left_out and list(whole.called) == ["n"]
    for side, moved in enumerate((4 * forward, 4 * backward)):
        parts, total = [each.variants[0].totals[side] for each in reports], whole.totals[side]
        for key in ("eager", "fused"):
            assert getattr(total, f"{key}_bytes") == moved + sum(getattr(each, f"{key}_bytes") for each in parts)
            alone = sum(getattr(each, f"{key}_microseconds") for each in parts)
            assert getattr(total, f"{key}_microseconds") == pytest.approx(alone + 2.5)


@pytest.mark.parametrize(
    ("question", "width"),
    [(Question(dtype="bfloat16"), 2), *((Question(**{key: 48}), None) for key in ("rows", "channels", "groups"))],
    ids=str,
)
def test_a_question_of_sizes_is_one_of_regions_alone(monkeypatch, question: Question, width: int | None) -> None:
    """What PyTorch calls has the spec's sizes, and a question gives each region its own."""
    made = build(planned("softmax, dim: 2").plans[0]).model_copy(update={"dtype": question.dtype or "float32"})
    monkeypatch.setattr(module, "build", lambda *_, **__: made)
    whole, _ = module.reported(planned("softmax, dim: 2"), question, None)
    assert whole is not None and whole.left_out == ([] if width else ["region_2"])
    assert [moves[0].bytes for moves in whole.called.values()] == ([2 * width * IMAGE] if width else [])


def test_each_format_says_it(capsys, tmp_path: Path) -> None:
    plan = planned("mean, dim: 2, keepdim: true", "relu")
    why = "PyTorch calls it: kernels have no mean over positions; 1.1 kB in 2.5 us forward, 1.1 kB in 2.5 us backward"
    text = module.written(plan, None, None)
    assert f"mean: region_1_result -> region_2_result  ({why})\n" in text
    assert "\n  forward, all regions: 3.0 kB, 5.0 us instead of 3.0 kB, 5.0 us in eager PyTorch\n" in text
    found = json.loads(module.written(plan, None, None, "json"))
    assert found["called"]["region_2"]["backward"] == {"bytes": 1120, "microseconds": 2.5, "saved_bytes": 0}
    assert found["totals"][0]["fused_bytes"] == 2 * 4 * IMAGE + 1120 and found["left_out"] == []
    (tmp_path / "demo.yaml").write_text(f"{HEAD}  - {{op: relu}}\n  - {{op: flatten}}\n")
    code, out, _ = said(capsys, "plan", tmp_path / "demo.yaml", "--format", "html")
    assert code == 0 and "PyTorch calls it: kernels have no flatten; nothing is moved" in Reader(out).text
