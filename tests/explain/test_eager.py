"""What eager PyTorch moves, operator by operator, against arithmetic done by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusegen.explain.build import build
from fusegen.explain.model import Operator, Variant
from fusegen.plan.load import plan_document
from fusegen.spec.yaml import parse_yaml
from tests.emulate.other_chains import HAND_PICKED
from tests.plan.planning import LINEAR, committed, planned

ROWS, CHANNELS, GROUPS = 1024, 8192, 256
MATRIX, VECTOR, SCALAR, COUNT = 4 * ROWS * CHANNELS, 4 * CHANNELS, 4, 8  # bytes in float32, and one int64
SMALL = 4 * 16 * 64  # of what `planned` plans
BARE = f"{LINEAR}, bias: false"


def bytes_of(operators: tuple[Operator, ...]) -> list[tuple[str, int, int]]:
    return [(each.step.partition(" ")[0], each.forward.bytes, each.backward.bytes) for each in operators]


def only(plan) -> Variant:
    (variant,) = build(plan).variants
    return variant


def test_batch_norm_in_training_and_evaluation() -> None:
    train, eval_ = build(committed("matmul_bn_bias_div_swish")).variants
    after = [
        # Backward, the gradient is passed on and summed; divided; multiplied by the slope at the operand.
        ("add", 2 * MATRIX + SCALAR, MATRIX + SCALAR),
        ("div", 2 * MATRIX, 2 * MATRIX),
        ("silu", 2 * MATRIX, 3 * MATRIX),
    ]
    assert bytes_of(train.operators) == [
        # The product is on both sides; the gradient of its bias is a sum of the product's gradient.
        ("linear", 0, MATRIX + VECTOR),
        # Weight, bias and running statistics are read; mean, 1/deviation and the new running statistics are written.
        # Backward: operand, gradient, weight and the two statistics; three gradients.
        ("batch_norm", 2 * MATRIX + 4 * VECTOR + COUNT + 4 * VECTOR + COUNT, 3 * MATRIX + 3 * VECTOR + 2 * VECTOR),
        *after,
    ]
    assert bytes_of(eval_.operators) == [
        ("linear", 0, MATRIX + VECTOR),
        ("batch_norm", 2 * MATRIX + 4 * VECTOR, 3 * MATRIX + 3 * VECTOR + 2 * VECTOR),
        *after,
    ]


def test_what_fused_kernels_save_of_it() -> None:
    train, _ = build(committed("matmul_bn_bias_div_swish")).variants
    forward, backward = train.totals
    assert forward.eager_bytes == 8 * MATRIX + 8 * VECTOR + SCALAR + 2 * COUNT
    # Of all that is moved, the product and the result stay, and what belongs to the module; the linear bias is added
    # by the kernels, not by the product.
    assert [each.forward.saved_bytes for each in train.operators] == [0, MATRIX, 2 * MATRIX, 2 * MATRIX, MATRIX]
    assert forward.besides_bytes == VECTOR
    assert forward.saved_bytes == 6 * MATRIX - VECTOR
    # Backward what stays are the product, and the gradients of the result and of the product.
    assert [each.backward.saved_bytes for each in train.operators] == [MATRIX, MATRIX, MATRIX, 2 * MATRIX, 2 * MATRIX]
    assert backward.saved_bytes == 7 * MATRIX - backward.besides_bytes


def test_group_norm_stores_statistics_of_each_group() -> None:
    found = only(committed("gemm_groupnorm_swish_multiply_swish"))
    statistics = 2 * 4 * ROWS * GROUPS
    assert bytes_of(found.operators)[1:] == [
        ("group_norm", 2 * MATRIX + 2 * VECTOR + statistics, 3 * MATRIX + statistics + VECTOR + 2 * VECTOR),
        ("silu", 2 * MATRIX, 3 * MATRIX),
        ("mul", 2 * MATRIX + VECTOR, 3 * MATRIX + VECTOR + VECTOR),
        ("silu", 2 * MATRIX, 3 * MATRIX),
    ]


def test_bytes_are_of_the_dtype_and_of_the_sizes(tmp_path: Path) -> None:
    narrow = only(planned(tmp_path, BARE, "op: relu", dtypes="bfloat16"))
    assert bytes_of(narrow.operators) == [("linear", 0, 0), ("relu", SMALL, 3 * SMALL // 2)]


def test_values_that_are_saved_and_inputs_are_read_where_they_are_used(tmp_path: Path) -> None:
    steps = (BARE + ", save: s", "op: sigmoid", "op: mul, value: s", "op: add, input: r")
    found = only(planned(tmp_path, *steps, inputs=", r: [batch, hidden]"))
    assert bytes_of(found.operators) == [
        ("linear", 0, 0),
        ("sigmoid", 2 * SMALL, 3 * SMALL),
        ("mul", 3 * SMALL, 5 * SMALL),  # two operands and the gradient; two gradients
        ("add", 3 * SMALL, 0),  # both gradients are the one that comes
    ]
    # Fused kernels read the product once, which two operators read.
    assert [each.forward.saved_bytes for each in found.operators] == [0, SMALL, 3 * SMALL, SMALL]


def test_a_gradient_that_is_passed_on_is_no_other_tensor(tmp_path: Path) -> None:
    """The gradient that relu reads is the one that comes to the module. Its own result, which PyTorch's backward pass
    reads, is in no tensor of the fused module."""
    found = only(planned(tmp_path, BARE, "op: relu", "op: sub, constant: 1.0"))
    assert bytes_of(found.operators)[1:] == [("relu", 2 * SMALL, 3 * SMALL), ("sub", 2 * SMALL, 0)]
    assert [each.backward.saved_bytes for each in found.operators] == [0, SMALL, 0]


def test_values_of_one_row_each_are_small(tmp_path: Path) -> None:
    steps = (BARE + ", save: s", "op: logsumexp, dim: 1, keepdim: true", "op: add, value: s")
    found = only(planned(tmp_path, *steps))
    row = 4 * 16
    logsumexp, add = bytes_of(found.operators)[1:]
    assert logsumexp[1] >= SMALL + row and logsumexp[1] <= SMALL + 3 * row
    assert add == ("add", 2 * SMALL + row, SMALL + row)


@pytest.mark.parametrize(
    ("norm", "statistics"),
    [
        ("layer_norm, name: n, affine: false", 2 * 4 * 16),
        ("rms_norm, name: n, affine: false", 4 * 16),
        ("batch_norm, name: n, affine: false, track_running_stats: false", 2 * 4 * 64),
    ],
)
def test_a_norm_without_a_weight_reads_its_operand(tmp_path: Path, norm: str, statistics: int) -> None:
    """As with one: its result would do instead of its operand, but PyTorch does not use that."""
    found = only(planned(tmp_path, BARE, f"op: {norm}", "op: relu"))
    assert bytes_of(found.operators)[1][1:] == (2 * SMALL + statistics, 3 * SMALL + statistics)


def split(spec: str) -> str:
    """The same in fp32_split, so wide that modules split it."""
    wide = re.sub(r"(?m)^dims: .*", lambda dims: re.sub(r": \d+", ": 4096", dims[0]), spec)
    return wide.replace("op: linear,", "op: linear, precision: fp32_split,")


IN_EPILOGUE = ("two_batch_norms", "residual", "with_itself", "constants")


@pytest.mark.parametrize("name", [*HAND_PICKED, *(f"{name} split" for name in IN_EPILOGUE)])
def test_every_chain_adds_up(name: str) -> None:
    name, _, precision = name.partition(" ")
    spec = HAND_PICKED[name].spec(name)
    report = build(plan_document(parse_yaml(split(spec) if precision else spec, f"{name}.yaml")))
    if precision:
        assert "epilogue" in [variant.programs[0].taken for variant in report.variants]
    for variant in report.variants:
        for total in variant.totals:
            moves = [getattr(each, total.direction) for each in variant.operators]
            assert total.eager_bytes == sum(each.bytes for each in moves)
            assert all(0 <= each.saved_bytes <= each.bytes for each in moves)
            assert total.besides_bytes >= 0, "fused kernels move all that counts as theirs"
            assert total.saved_bytes == sum(each.saved_bytes for each in moves) - total.besides_bytes
