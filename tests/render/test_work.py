"""What launchers are told of their kernels, by which they choose schedules and launch shapes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusegen.render.package import render_all
from tests.plan.planning import LINEAR, planned

LAYER, BATCH = "op: layer_norm, name: ln", "op: batch_norm, name: bn"
# Steps, and of the forward and of the backward row kernel: column sums, constants of a column, tensors read again, and
# whether costly functions come before the last sums.
ROW_CHAINS = {
    "plain": (("op: layer_norm, name: ln, affine: false",), [("false", 0, 1, "false"), ("false", 0, 2, "false")]),
    "rms": (("op: rms_norm, name: rms",), [("false", 1, 1, "false"), ("true", 1, 2, "false")]),
    "layer": ((LAYER,), [("false", 2, 1, "false"), ("true", 1, 2, "false")]),
    "bias_in_front": ((LINEAR, LAYER), [("false", 3, 1, "false"), ("true", 2, 2, "false")]),
    "gelu_in_front": (("op: gelu", LAYER), [("false", 2, 1, "true"), ("true", 1, 2, "true")]),
    "gelu_between": (
        (LAYER, "op: gelu", "op: rms_norm, name: rms"),
        [("false", 3, 2, "true"), ("true", 3, 4, "true")],
    ),
    "relu_in_front": (("op: relu", LAYER), [("false", 2, 1, "false"), ("true", 1, 2, "false")]),
    "gelu_behind": ((LAYER, "op: gelu"), [("false", 2, 1, "false"), ("true", 2, 2, "true")]),
    # Only one row kernel: what comes before it runs in both schedules alike, which is no second read.
    "two_lengths": (
        ("op: group_norm, name: gn, num_groups: 4", LAYER),
        [("false", 4, 1, "false"), ("true", 3, 2, "false")],
    ),
}
# Steps, and of the forward and of the backward column kernel: tensors that it moves, tensors read again.
COLUMN_CHAINS = {
    "batch": ((BATCH,), [(2, 1), (3, 2)]),
    "relu_behind": ((LINEAR, BATCH, "op: relu"), [(2, 1), (3, 2)]),
    # What comes before the last norm runs in both schedules alike.
    "layer_before": ((LAYER, BATCH), [(2, 1)]),  # backward it ends with a row kernel
}
# Steps, and the streams of each launcher: forward and backward in training, then in evaluation.
STREAM_CHAINS = {
    "batch": ((BATCH,), [["kStores", "kSum"], ["kStores", "kSums"], ["kStores"], ["kSums"]]),
    "scale": (("op: mul, parameter: p, shape: [width], init: ones",), [["kStores"], ["kSums"]]),
    "nothing_to_sum": (("op: relu",), [["kStores"], ["kStores"]]),
}


def kernels(root: Path, steps: tuple[str, ...]) -> str:
    files = render_all([planned(root, *steps)])
    return next(text for path, text in files.items() if path.endswith("kernels.cu"))


@pytest.mark.parametrize("name", ROW_CHAINS)
def test_row_work(name: str, tmp_path: Path) -> None:
    steps, expected = ROW_CHAINS[name]
    found = re.findall(r"constexpr RowWork kWork\{(\w+), \d+, (\d+), (\d+), (\w+)\};", kernels(tmp_path, steps))
    assert [(sums, int(constants), int(again), before) for sums, constants, again, before in found] == expected


@pytest.mark.parametrize("name", ["plain", "layer"])
def test_only_kernels_without_column_sums_have_as_many_blocks_as_their_registers_allow(
    name: str, tmp_path: Path
) -> None:
    """The others' partial results must not depend on the GPU."""
    steps, expected = ROW_CHAINS[name]
    launchers = re.split(r"constexpr RowWork kWork", kernels(tmp_path, steps))[1:]
    resident = (
        r"resident_blocks\(kernel, row.block, shared_bytes, row.resident\);\s+set_row_blocks\(row, shapes, kWork,"
    )
    assert [len(re.findall(resident, text)) for text in launchers] == [sums == "false" for sums, *_ in expected]


@pytest.mark.parametrize("name", COLUMN_CHAINS)
def test_column_work(name: str, tmp_path: Path) -> None:
    steps, expected = COLUMN_CHAINS[name]
    found = re.findall(r"constexpr ColumnWork kWork\{[^}]*,\s+(\d+),\s+(\d+)\};", kernels(tmp_path, steps))
    assert [(int(moved), int(again)) for moved, again in found] == expected


@pytest.mark.parametrize("name", STREAM_CHAINS)
def test_stream_work(name: str, tmp_path: Path) -> None:
    steps, expected = STREAM_CHAINS[name]
    launchers = re.split(r"cudaError_t \w+_launch\(", kernels(tmp_path, steps))[1:]
    found = [re.findall(r"StreamWork::(\w+)", each.split("cudaError_t", 1)[0]) for each in launchers]
    assert found == expected
