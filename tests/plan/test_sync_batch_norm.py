"""Batch norm over ranks: what each of its four programs reads comes from the call, the ranks or those before it."""

from __future__ import annotations

import pytest

from fusegen.errors import SpecError
from fusegen.ir.graph import ancestors
from fusegen.render.ops.rank_ops import rank_ops
from tests.plan.planning import LINEAR, planned

BN = "op: batch_norm, name: bn, sync: true"
CHAINS = {
    "linear": (LINEAR, BN, "op: relu"),
    "alone": (BN,),
    "a gradient of zeros": (BN, "op: floor"),
    "residual": ("op: silu, save: v", BN, "op: add, value: v", "op: gelu"),
    "detached": ("op: silu, save: v", BN, "op: mul, value: v, detach: true"),
    "rows before and behind": (LINEAR, "op: softmax", BN, "op: amax, keepdim: true", "op: sub, input: z"),
    "rms norm behind": (LINEAR, BN, "op: rms_norm, name: rms"),
    "a scalar parameter": (LINEAR, BN, "op: prelu, name: act, num_parameters: 1"),
}


@pytest.mark.parametrize("name", CHAINS)
def test_what_each_op_takes_is_there(name, tmp_path) -> None:
    inputs = ", z: [batch, hidden]" if "input: z" in str(CHAINS[name]) else ""
    plan = planned(tmp_path, *CHAINS[name], inputs=inputs)
    ranks, ops = plan.sync_batch_norm, rank_ops(plan, plan.sync_batch_norm)
    merged = {ranks.norm.mean.name, ranks.norm.variance.name}
    called = {each.name for each in ops.forward.arguments} - merged
    assert {each.name for each in ops.statistics.arguments} <= called
    known = called | merged | set(ops.forward.results)
    assert {each.name for each in ops.sums.arguments[1:-1]} <= known
    exchanged = {ranks.exchanged.mean_g.name, ranks.exchanged.mean_g_xhat.name}
    assert {each.name for each in ops.backward.arguments[1:-1]} <= known | exchanged
    # Each gradient that the programs of one process make is made once.
    made = [t.gradient_of for each in (ranks.sums, ranks.variant.backward) for t in each.outputs if t.gradient_of]
    assert sorted(made) == sorted(t.gradient_of for t in plan.variants[0].backward.outputs)


def test_early_gradients_are_those_behind_the_norm(tmp_path) -> None:
    plan = planned(tmp_path, *CHAINS["linear"])
    ranks = plan.sync_batch_norm
    assert [t.gradient_of for t in ranks.sums.outputs] == ["", "", "bn_weight", "bn_bias"]
    assert [t.gradient_of for t in ranks.variant.backward.outputs] == ["gemm_product", "gemm_bias"]


def test_the_gradient_of_a_bias_does_not_vanish_on_one_rank(tmp_path) -> None:
    plan = planned(tmp_path, *CHAINS["linear"])
    vanishing = [
        any(node.op == "vanishing" for node in ancestors([t.node for t in program.outputs]))
        for program in (plan.sync_batch_norm.variant.backward, plan.variants[0].backward)
    ]
    assert vanishing == [False, True]


def test_rows_in_front_of_moments_are_reduced_by_kernels_of_their_own(tmp_path) -> None:
    """Row kernels leave sums of columns to others, but no moments."""
    plan = planned(tmp_path, *CHAINS["rows before and behind"], inputs=", z: [batch, hidden]")
    assert [each.kind for each in plan.sync_batch_norm.statistics.schedules] == ["two_pass"]
    assert [each.kind for each in plan.sync_batch_norm.variant.forward.schedules] == ["row", "two_pass"]


def test_one_process_has_the_programs_that_it_had(tmp_path) -> None:
    chains = [planned(tmp_path, LINEAR, each, "op: relu") for each in (BN, BN.replace(", sync: true", ""))]
    names = [[(p.name, p.inputs, [s.kind for s in p.schedules]) for p in plan.programs] for plan in chains]
    assert str(names[0][:4]) == str(names[1]) and chains[1].sync_batch_norm is None


def test_arguments_of_the_norm_are_used(tmp_path) -> None:
    """By the programs of one process: those over ranks leave the momentum to what merges the statistics."""
    momentum = ", share: {type: float, default: 0.1}"
    assert planned(tmp_path, LINEAR, f"{BN}, momentum: share", arguments=momentum).sync_batch_norm


@pytest.mark.parametrize(
    ("before", "why"),
    [("op: glu", "cannot divide its source"), ("op: dropout, name: drop, p: 0.5", "can have no dropout")],
)
def test_what_has_no_place_between_exchanges_is_refused(before, why, tmp_path) -> None:
    with pytest.raises(SpecError, match=why):
        planned(tmp_path, before, BN)


@pytest.mark.parametrize(
    ("shape", "step", "why"),
    [
        ("[batch, 1]", "op: mul, input: r", "as large as its running value: 'r' is not"),
        ("[hidden]", "op: add, input: r", "as large as its running value: 'r' is not"),
        ("[batch, hidden]", "op: mul, mask: r", "can have no mask: 'r'"),
    ],
)
def test_inputs_that_broadcast_and_masks_are_refused_between_exchanges(shape, step, why, tmp_path) -> None:
    with pytest.raises(SpecError, match=why):
        planned(tmp_path, LINEAR, BN, step, inputs=f", r: {shape}")


def test_inputs_as_large_as_the_running_value_are_taken_between_exchanges(tmp_path) -> None:
    assert planned(tmp_path, LINEAR, BN, "op: mul, input: r, plus: 1", inputs=", r: [batch, hidden]").sync_batch_norm
