"""The fewest bytes of a tail, counted by hand, and as `fusegen plan` has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.bench.bytes import tail_bytes
from fusegen.bench.names import EVAL, STEP, TRAIN
from fusegen.bench.shapes import sizes_of
from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.plan.summary import summary
from tests.bench.standins import CHAIN, GROUPS

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]


def plan_of(directory: Path, name: str, text: str):
    path = directory / f"{name}.yaml"
    path.write_text(text.format(name=name), encoding="utf-8")
    return plan_file(path)


def test_a_norm_behind_a_linear_layer(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "linear", CHAIN)
    sizes = sizes_of(module_of(plan), "10x7x5")
    full, column = 10 * 5, 5
    for mode, width, bias in zip(plan.modes[:2], (4, 2), (1, 0), strict=True):
        # The product and the result; the linear bias where the kernels add it; the norm's weight, bias, mean, variance.
        evaluation = (2 * full + (bias + 4) * column) * width
        assert tail_bytes(plan, mode, sizes, EVAL) == (evaluation,)
        # The running statistics are written too, the batch's saved in float32; the count of batches is read and
        # written.
        training = evaluation + 2 * column * width + 2 * column * 4 + 2 * 8
        assert tail_bytes(plan, mode, sizes, TRAIN) == (training,)
        # Two full inputs, one full result, three column sums; the saved statistics are read again.
        backward = (3 * full + (bias + 2 + 3) * column) * width + 2 * column * 4
        assert tail_bytes(plan, mode, sizes, STEP) == (training, backward)


def test_groups_have_one_statistic_each(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "groups", GROUPS)
    small, large = (
        tail_bytes(plan, plan.modes[0], sizes_of(module_of(plan), shape), TRAIN)[0] for shape in ("8x12", "8x24")
    )
    # x, gate and the result, weight and bias; the statistics of six groups do not grow with the channels.
    assert large - small == 3 * 8 * 12 * 4 + 2 * 12 * 4


@pytest.mark.parametrize("name", ["matmul_bn_bias_div_swish", "gemm_groupnorm_swish_multiply_swish"])
def test_as_planned_at_the_typical_sizes(name: str) -> None:
    plan = plan_file(ROOT / "specs" / f"{name}.yaml")
    floors = [program["floor_bytes"] for program in summary(plan)["variants"][0]["programs"]]
    assert list(tail_bytes(plan, plan.modes[0], sizes_of(module_of(plan), "typical"), STEP)) == floors


def test_a_bias_in_parts_is_the_products_in_16_bits() -> None:
    """The library adds it, as it adds one that is in one part: the tail reads both halves of the product alone."""
    plan = plan_file(ROOT / "specs" / "geglu.yaml")
    sizes = sizes_of(module_of(plan), "10x7x5")
    half, bias = 10 * 5, 2 * 5
    assert tail_bytes(plan, plan.modes[0], sizes, EVAL) == ((3 * half + bias) * 4,)
    assert tail_bytes(plan, plan.modes[1], sizes, EVAL) == (3 * half * 2,)
