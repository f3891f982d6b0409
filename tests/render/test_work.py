"""What launchers are told of their kernels, by which they choose schedules and launch shapes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plan.planning import LINEAR
from tests.render.rendering import kernels

LAYER, BATCH = "op: layer_norm, name: ln", "op: batch_norm, name: bn"
# Steps, and of the forward and of the backward row kernel: sums and constants of a column, tensors read again, values
# of an element, and whether there is an instance for large blocks.
ROW_CHAINS = {
    "plain": (("op: layer_norm, name: ln, affine: false",), [(0, 0, 1, 2, True), (0, 0, 2, 6, True)]),
    "rms": (("op: rms_norm, name: rms",), [(0, 1, 1, 3, True), (1, 1, 2, 7, True)]),
    "layer": ((LAYER,), [(0, 2, 1, 4, True), (2, 1, 2, 9, True)]),
    "bias_in_front": ((LINEAR, LAYER), [(0, 3, 1, 5, True), (3, 2, 2, 10, True)]),
    "gelu_in_front": (("op: gelu", LAYER), [(0, 2, 1, 6, True), (2, 1, 2, 13, True)]),
    "gelu_between": ((LAYER, "op: gelu", "op: rms_norm, name: rms"), [(0, 3, 2, 9, True), (3, 3, 4, 22, True)]),
    "gelu_behind": ((LAYER, "op: gelu"), [(0, 2, 1, 6, True), (2, 2, 2, 14, True)]),
    "too_much_to_keep": (
        (LINEAR, LAYER, "op: mul, parameter: p, shape: [hidden], init: ones"),
        [(0, 4, 1, 6, True), (4, 4, 2, 13, False)],
    ),
    # Only one row kernel: what comes before it runs in both schedules alike, which is no second read.
    "two_lengths": (
        ("op: group_norm, name: gn, num_groups: 4", LAYER),
        [(0, 4, 1, 8, True), (4, 3, 2, 19, False)],
    ),
}
# Steps, and of the forward and of the backward column kernel: tensors that it moves, tensors read again, and
# the bytes of an element that panels keep.
COLUMN_CHAINS = {
    "batch": ((BATCH,), [(2, 1, "sizeof(T)"), (3, 2, "sizeof(T) + sizeof(Out)")]),
    "relu_behind": ((LINEAR, BATCH, "op: relu"), [(2, 1, "sizeof(T)"), (3, 2, "sizeof(T) + sizeof(Out)")]),
    # What comes before the last norm runs in both schedules alike, and panels are not for it.
    "layer_before": ((LAYER, BATCH), [(2, 1, "0")]),  # backward it ends with a row kernel
}
# Steps, and the streams of each launcher: forward and backward in training, then in evaluation.
STREAM_CHAINS = {
    "batch": ((BATCH,), [["kStores", "kSum"], ["kStores", "kSums"], ["kStores"], ["kSums"]]),
    "scale": (("op: mul, parameter: p, shape: [width], init: ones",), [["kStores"], ["kSums"]]),
    "nothing_to_sum": (("op: relu",), [["kStores"], ["kStores"]]),
}


@pytest.mark.parametrize("name", ROW_CHAINS)
def test_row_work(name: str, tmp_path: Path) -> None:
    steps, expected = ROW_CHAINS[name]
    counts = r"(\d+), \d+, (\d+), (\d+), (\d+), sizeof\(T\)"
    work = rf"constexpr RowWork kWork\{{{counts},\s+row_most_threads\((\w+)[^{{}}]*\),\s+(\w+)\}}"
    found = re.findall(work, kernels(tmp_path, steps))
    assert [(*map(int, numbers), large == "true") for *numbers, large, _ in found] == expected
    # Clusters hold segments where there are column sums, too.
    assert [cluster for *_, cluster in found] == ["kMostCluster" if sums else "1" for sums, *_ in expected]


# Steps, and of the forward and of the backward row kernel: the bytes of a thread's columns, when they are in shared
# memory, in the kernel and for its launch, and what else has to fit there.
STAGED_CHAINS = {
    "bias_in_front": (
        (LINEAR, LAYER),
        [
            ("2 * kVec * (sizeof(T) + 2 * sizeof(Param))", "kLarge", "row.large", "96 * sizeof(Acc)"),
            (
                "2 * kRow * (sizeof(T) + sizeof(Param) + 3 * sizeof(Acc))",
                "kLarge",
                "row.large",
                "kRowExchange<kRow, 2> * sizeof(Acc)",
            ),
        ],
    ),
    # Four constants, and sums of them all, which leaves no instance for large blocks.
    "too_much_to_keep": (
        ROW_CHAINS["too_much_to_keep"][0],
        [
            ("2 * kVec * (sizeof(T) + 3 * sizeof(Param))", "kLarge", "row.large", "96 * sizeof(Acc)"),
            (
                "2 * kRow * (sizeof(T) + 3 * sizeof(Param))",
                "kItems * kVec >= 8",
                "row.items * (wide ? kWide : kRow) >= 8",
                "kRowExchange<kRow, 2> * sizeof(Acc)",
            ),
        ],
    ),
}


@pytest.mark.parametrize("name", STAGED_CHAINS)
def test_what_large_blocks_keep_in_shared_memory_has_room_there(name: str, tmp_path: Path) -> None:
    steps, expected = STAGED_CHAINS[name]
    text = kernels(tmp_path, steps)
    bytes_ = re.findall(r"constexpr int kStagedBytes =\s+(.*?);", text, re.DOTALL)
    kept = re.findall(r"constexpr bool kStaged = (.*?);", text)
    launched = re.findall(r"const size_t staged = (.*?) \? row\.block\.x \* kStagedBytes : 0;", text)
    room = re.findall(r"row_most_threads\(\w+, kStagedBytes, kSharedBytes - (.*?)\),\s+\w+\};", text)
    assert list(zip(bytes_, kept, launched, room, strict=True)) == expected


def test_without_anything_to_keep_there_shared_memory_is_for_exchanges(tmp_path: Path) -> None:
    assert "kStagedBytes" not in kernels(tmp_path, ("op: layer_norm, name: ln, affine: false",))


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
    assert [len(re.findall(resident, text)) for text in launchers] == [sums == 0 for sums, *_ in expected]


@pytest.mark.parametrize("name", COLUMN_CHAINS)
def test_column_work(name: str, tmp_path: Path) -> None:
    steps, expected = COLUMN_CHAINS[name]
    found = re.findall(r"constexpr ColumnWork kWork\{[^}]*,\s+(\d+),\s+(\d+),\s+([^}]+?)\};", kernels(tmp_path, steps))
    assert [(int(moved), int(again), " ".join(kept.split())) for moved, again, kept in found] == expected


@pytest.mark.parametrize("name", STREAM_CHAINS)
def test_stream_work(name: str, tmp_path: Path) -> None:
    steps, expected = STREAM_CHAINS[name]
    launchers = re.split(r"cudaError_t \w+_launch\(", kernels(tmp_path, steps))[1:]
    found = [re.findall(r"StreamWork::(\w+)", each.split("_typed(", 1)[0]) for each in launchers]
    assert found == expected


def test_kernels_whose_blocks_wait_for_others_are_launched_in_order(tmp_path: Path) -> None:
    text = kernels(tmp_path, (BATCH,))
    bodies = re.findall(r"(?ms)^__global__ void __launch_bounds__\(.*?\) (\w+)\((.*?)^}$", text)
    waiting = {name for name, body in bodies if "wait_for_parts(" in body}
    assert waiting == set(re.findall(r"launch_in_order\((\w+)<", text)) == {
        "train_forward_panel", "train_backward_panel"
    }  # fmt: skip
