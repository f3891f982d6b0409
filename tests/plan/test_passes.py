"""A program as passes: what each of them reads and sums, and where what follows from the sums is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.ir.axes import CHANNEL, ROW
from fusegen.plan.launches.kinds import Stays
from fusegen.plan.programs.passes import BEFORE, Passes
from fusegen.plan.programs.units import Unit
from tests.plan.planning import LINEAR, planned

BATCH, LAYER = "op: batch_norm, name: bn", "op: layer_norm, name: ln"


def passes_of(root: Path, program: str, *steps: str) -> Passes:
    (found,) = (each for each in planned(root, *steps).programs if each.name == program)
    return Passes(found)


def reads(passes: Passes) -> list[list[str]]:
    return [[tensor.name for tensor in each.reads] for each in passes.passes]


def sums(passes: Passes) -> list[list[str]]:
    return [[node.op for node in each.sums] for each in passes.passes]


def names(nodes) -> list[str]:
    return sorted(node.name for node in nodes)


def uses(passes: Passes) -> dict[str, tuple[int, set[int]]]:
    """By tensor that is not of full size: the pass that makes it, and the passes that need it."""
    count = len(passes.passes) + 1
    return {
        tensor.name: (made, {i for i in range(count) if passes.uses(tensor, made) >> i & 1})
        for tensor, made in passes.in_memory
    }


def test_without_sums_there_is_one_pass(tmp_path: Path) -> None:
    passes = passes_of(tmp_path, "forward", LINEAR, "op: relu")
    assert reads(passes) == [["gemm_product"]] and sums(passes) == [[]]
    assert passes.passes[0].unit is None and passes.last == passes.first_resident == 0
    assert [tensor.name for tensor in passes.passes[0].stores] == ["y"]
    assert uses(passes) == {"gemm_bias": (BEFORE, {0})}
    assert not passes.followed and not any(passes.stored) and not any(passes.scratch)


def test_a_layer_norm_sums_rows_and_then_stores(tmp_path: Path) -> None:
    passes = passes_of(tmp_path, "forward", LAYER)
    assert [each.unit for each in passes.passes] == [Unit.ROW, None]
    assert reads(passes) == [["x"], ["x"]] and sums(passes) == [["moments"], []]
    assert [[t.name for t in each.stores] for each in passes.passes] == [[], ["y"]]
    # The results of the sums are stored behind them, and what elements need of them follows from the sums.
    assert [names(t.node for t in tensors) for tensors in passes.stored] == [["ln_mean", "ln_rstd"], [], []]
    assert {"ln_mean", "ln_rstd"} <= {node.name for node in passes.followed}
    assert {passes.place(node) for node in passes.followed} == {0}
    made = uses(passes)
    assert made["ln_weight"] == made["ln_bias"] == (BEFORE, {1})
    assert made["ln_mean"] == made["ln_rstd"] == (0, {1})


def test_sums_of_channels_that_nothing_waits_for_are_of_the_last_pass(tmp_path: Path) -> None:
    passes = passes_of(tmp_path, "backward", LAYER)
    assert [each.unit for each in passes.passes] == [Unit.ROW, Unit.CHANNEL]
    assert sums(passes) == [["sum", "sum"], ["sum", "sum"]]  # of the gradient's norm; of weight and bias
    assert reads(passes) == [["x", "grad_y"], ["x", "grad_y"]]
    assert [names(t.node for t in tensors) for tensors in passes.stored] == [
        [],
        names(t.node for t in passes.program.outputs if not t.is_full),
        [],
    ]
    # The saved statistics are needed wherever the normalised value is, the mean of the gradient only behind the sums.
    made = uses(passes)
    assert made["ln_mean"] == made["ln_rstd"] == (BEFORE, {0, 1})
    assert made["ln_weight"] == (BEFORE, {0, 1})
    (scratch,) = [tensors for tensors in passes.scratch if tensors]
    assert passes.scratch.index(scratch) == 0
    for tensor in scratch:
        assert made[tensor.name] == (0, {1})


def test_running_statistics_are_only_stored(tmp_path: Path) -> None:
    """What elements need is at hand before the last pass; the running statistics follow later, from the same sums."""
    passes = passes_of(tmp_path, "train_forward", LINEAR, BATCH)
    assert [each.unit for each in passes.passes] == [Unit.CHANNEL, None]
    assert reads(passes) == [["gemm_product"], ["gemm_product"]]
    stored = {tensor.name for tensor in passes.stored[0]}
    assert {"bn_mean", "bn_rstd", "bn_running_mean", "bn_running_var"} <= stored
    finished = set(passes.finished[0])
    by_name = {tensor.name: tensor.node for tensor in passes.stored[0]}
    assert {by_name["bn_running_mean"], by_name["bn_running_var"]} <= finished
    assert not finished & passes.followed and by_name["bn_rstd"] in passes.followed
    made = uses(passes)
    assert made["bn_running_mean"] == made["bn_running_var"] == (BEFORE, set())
    # The weight is part of the scale, which follows from the sums: elements need the scale alone.
    assert made["bn_weight"] == (BEFORE, {0})
    # Counting says nothing of elements: it is no result of a pass.
    assert "bn_num_batches_tracked" not in stored


def test_what_follows_from_tensors_alone_is_derived(tmp_path: Path) -> None:
    """In evaluation batch norm is one multiplication and one addition, by what its tensors give."""
    passes = passes_of(tmp_path, "eval_forward", LINEAR, BATCH)
    assert sums(passes) == [[]] and not passes.followed
    derived = {node for node in passes.derived if node.axes == CHANNEL}
    assert passes.passes[0].small & derived and all(passes.place(node) == BEFORE for node in derived)
    assert {"bn_scale", "bn_center"} <= {node.name for node in derived}


def test_a_later_norm_has_a_pass_behind_that_of_the_first(tmp_path: Path) -> None:
    """Rows, then columns of what the first norm made: kernels keep columns, and read the rows' results from memory."""
    passes = passes_of(tmp_path, "train_forward", LAYER, BATCH)
    assert [each.unit for each in passes.passes] == [Unit.ROW, Unit.CHANNEL, None]
    assert reads(passes) == [["x"], ["x"], ["x"]] and passes.first_resident == 1
    made = uses(passes)
    assert made["ln_mean"] == made["ln_rstd"] == (0, {1, 2})
    assert made["ln_weight"] == (BEFORE, {1, 2})
    # A shift is no matter of the moments; it is in what is subtracted, which follows from the columns' sums.
    assert made["ln_bias"] == (BEFORE, {1})
    behind = {name: needed for name, (pass_, needed) in made.items() if pass_ == 1}
    assert behind and all(needed == {2} for needed in behind.values())
    # A kernel that begins with the last pass finds all of it; one that begins with the columns' has it made.
    assert {t.name for t in passes.tensors_of_elements(1) if t.axes == ROW} == {"ln_mean", "ln_rstd"}
    assert not behind.keys() & {t.name for t in passes.tensors_of_elements(1)}
    assert behind.keys() <= {t.name for t in passes.tensors_of_elements(2)}
    # x normalised is computed in the second pass for its moments, and not for the first.
    (operand,) = (node.operands[0] for node in passes.passes[1].sums)
    assert passes.level[operand] == 1 and operand not in passes.passes[0].values


def test_sums_of_sums_go_over_the_channels(tmp_path: Path) -> None:
    """The gradient of a constant of the whole chain: summed over rows, then over channels."""
    passes = passes_of(tmp_path, "backward", LINEAR, "op: mul, parameter: s, shape: [1], init: ones", "op: gelu")
    assert len(passes.passes) == 1 and passes.program.scalar_sums
    over_channels = len(passes.passes)
    assert [t.name for t in passes.stored[over_channels]] == ["grad_s"]
    assert all(passes.place(node) == over_channels for node in passes.program.scalar_sums)
    assert len(passes.finished) == over_channels + 1
    read = [t for t, made in passes.in_memory if passes.uses(t, made) >> over_channels & 1]
    assert read and all(tensor.axes == CHANNEL for tensor in read)


@pytest.mark.parametrize(
    ("step", "cached"), [("op: silu", True), ("op: relu", False), ("op: add, parameter: p, shape: [width]", False)]
)
def test_costly_functions_are_cached_for_later_passes(tmp_path: Path, step: str, cached: bool) -> None:
    init = ", init: ones" if "parameter" in step else ""
    passes = passes_of(tmp_path, "train_forward", step + init, BATCH)
    first, last = passes.cached[Stays.SHARED]
    assert not first and bool(last) is cached and not any(passes.cached[Stays.REGISTERS])
    # What is not cached is computed again from the tile, and what is cached is not.
    assert passes.tile_reads() == (set() if cached else {"x"})


def test_a_slope_is_computed_in_the_pass_that_keeps_it(tmp_path: Path) -> None:
    """The first pass has no use for it, but what it is made of is at hand there alone."""
    passes = passes_of(tmp_path, "backward", "op: silu", LAYER)
    (slope,) = (node for node in passes.cached[Stays.REGISTERS][1] if node.op == "silu_slope")
    assert slope not in passes.passes[0].values and slope in passes.passes[1].values
    assert passes.level[slope] == 0
