"""Bytes and floors, checked against arithmetic done by hand."""

from __future__ import annotations

from fusegen.explain.text import report
from fusegen.plan.summary import summary
from tests.plan.planning import LINEAR, committed, planned

ROWS, CHANNELS = 1024, 8192
MATRIX, VECTOR, SCALAR, COUNT = 4 * ROWS * CHANNELS, 4 * CHANNELS, 4, 8  # bytes in float32, and one int64


def programs(plan) -> dict[str, dict]:
    return {p["name"]: p for variant in summary(plan)["variants"] for p in variant["programs"]}


def bytes_of(program: dict) -> dict[str, int]:
    return {schedule["kind"]: schedule["bytes"] for schedule in program["schedules"]}


def test_batch_norm_forward() -> None:
    found = programs(committed("matmul_bn_bias_div_swish"))["train_forward"]
    # Read: the product; linear bias, weight, shift, two running statistics; bias; the batch count.
    # Written: y; mean, 1/deviation, two running statistics; the batch count.
    floor = MATRIX + 5 * VECTOR + SCALAR + COUNT + MATRIX + 4 * VECTOR + COUNT
    assert found["floor_bytes"] == floor
    assert bytes_of(found)["column"] == floor, "one kernel: each tensor moves once"
    # Two-pass: partial sums read the product. The final reduction reads the running statistics, the count, the
    # linear bias and the weight, and writes the running and the batch's statistics, the count and what follows from the
    # statistics for each column, `bn_center` and `bn_scale`; the last pass reads the latter with the shift.
    partials, final = MATRIX, 2 * VECTOR + COUNT + 2 * VECTOR + 4 * VECTOR + COUNT + 2 * VECTOR
    apply_ = MATRIX + 2 * VECTOR + VECTOR + SCALAR + MATRIX
    assert bytes_of(found)["two_pass"] == partials + final + apply_
    assert bytes_of(found)["l2"] == floor + 2 * VECTOR, "and what follows from the statistics"


def test_batch_norm_backward() -> None:
    found = programs(committed("matmul_bn_bias_div_swish"))["train_backward"]
    # Read: grad_y, the product; linear bias, weight, shift, mean, 1/deviation; bias.
    # Written: the product's gradient; those of linear bias, weight, shift; that of bias.
    floor = 2 * MATRIX + 5 * VECTOR + SCALAR + MATRIX + 3 * VECTOR + SCALAR
    assert found["floor_bytes"] == floor
    assert floor < bytes_of(found)["column"] < 1.01 * floor
    assert floor < bytes_of(found)["l2"] < 1.01 * floor
    assert 5 * MATRIX < bytes_of(found)["two_pass"] < 5.03 * MATRIX


def test_group_norm_reads_its_input_twice_when_segments_do_not_fit() -> None:
    plan = committed("gemm_groupnorm_hardtanh")
    groups = plan.spec.arguments["num_groups"].typical
    segments = 4 * ROWS * groups
    found = programs(plan)["forward"]
    # Read: the product; linear bias, weight, shift. Written: y; mean and 1/deviation of each group.
    floor = MATRIX + 3 * VECTOR + MATRIX + 2 * segments
    assert found["floor_bytes"] == bytes_of(found)["row"] == floor
    # Statistics: one pass over the product; then the product again and the statistics.
    statistics = MATRIX + VECTOR + 2 * segments
    assert bytes_of(found)["two_pass"] == statistics + (MATRIX + 3 * VECTOR + 2 * segments + MATRIX)


def test_bytes_are_those_of_the_first_dtype(tmp_path) -> None:
    steps = (LINEAR + ", bias: false", "op: relu")
    wide = programs(planned(tmp_path, *steps, dtypes="float32"))
    narrow = programs(planned(tmp_path, *steps, dtypes="bfloat16, float32"))
    assert wide["forward"]["floor_bytes"] == 2 * 4 * 16 * 64
    assert narrow["forward"]["floor_bytes"] == 2 * 2 * 16 * 64
    assert wide["backward"]["floor_bytes"] == 3 * 4 * 16 * 64


def test_floor_as_time() -> None:
    """Bytes over the bandwidth of the device table: 2 x 32 MiB and one vector at 3000 GB/s."""
    text = report(committed("gemm_multiply_leakyrelu"))
    assert 2 * MATRIX + VECTOR == 67_141_632
    assert "floor 67.1 MB in float32: 22.4 us at 3000 GB/s (H100)" in text
