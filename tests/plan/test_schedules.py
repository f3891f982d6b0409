"""What holds for every schedule of every committed spec, and which chains get which schedules."""

from __future__ import annotations

import pytest

from fusegen.errors import InternalError
from fusegen.ir.axes import CHANNEL, MATRIX, ROW
from fusegen.ir.graph import Graph
from fusegen.plan.launches.devices import DEVICES, fastest, unknown_targets
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program, Schedule, Tensor
from fusegen.plan.schedules.kernel import check_stored
from fusegen.plan.schedules.schedule import Scheduler
from tests.plan.planning import LINEAR, SPECS, committed, planned


def programs(plan: Plan) -> dict[str, Program]:
    return {p.name: p for variant in plan.variants for p in (variant.forward, variant.backward)}


def schedules(plan: Plan) -> list[tuple[Program, Schedule]]:
    return [(program, s) for program in programs(plan).values() for s in program.schedules]


def kinds(plan: Plan) -> dict[str, list[str]]:
    return {name: [s.kind for s in program.schedules] for name, program in programs(plan).items()}


@pytest.mark.parametrize("name", SPECS)
def test_every_result_is_written_once(name: str) -> None:
    for program, schedule in schedules(committed(name)):
        kernels = [*schedule.kernels, *program.scalar_reductions]
        written = [t.name for kernel in kernels for t in kernel.writes if not t.scratch]
        assert sorted(written) == sorted(t.name for t in program.outputs), (program.name, schedule.kind)


@pytest.mark.parametrize("name", SPECS)
def test_nothing_is_read_before_it_is_written(name: str) -> None:
    for program, schedule in schedules(committed(name)):
        there = {t.node for t in program.inputs}
        for kernel in (*schedule.kernels, *program.scalar_reductions):
            assert {t.node for t in kernel.reads} <= there, kernel.name
            there |= {t.node for t in kernel.writes if t.role == "accumulator"}


@pytest.mark.parametrize("name", SPECS)
def test_partial_sums_are_reduced_next(name: str) -> None:
    for _, schedule in schedules(committed(name)):
        for kernel, following in zip(schedule.kernels, [*schedule.kernels[1:], None], strict=True):
            if kernel.kind != "final_reduction" and kernel.partial_sums:
                assert following is not None and following.kind == "final_reduction"
                assert following.partial_sums == kernel.partial_sums


@pytest.mark.parametrize("name", SPECS)
def test_the_last_schedule_fits_every_size(name: str) -> None:
    for program in programs(committed(name)).values():
        *others, last = program.schedules
        assert {kernel.kind for kernel in last.kernels} <= {"pointwise", "final_reduction", "row_reduction"}
        assert {schedule.kind for schedule in others} <= {"row", "column", "l2"}


@pytest.mark.parametrize("name", SPECS)
def test_kernels_of_one_name_are_one_kernel(name: str) -> None:
    """Alternatives may share a kernel; its text is emitted once."""
    for program in programs(committed(name)).values():
        seen = {}
        for kernel in program.kernels:
            assert seen.setdefault(kernel.name, kernel) == kernel


@pytest.mark.parametrize("between", ["op: relu", "op: layer_norm, name: ln"])
def test_a_batch_is_counted_where_running_statistics_are_moved(tmp_path, between: str) -> None:
    plan = planned(tmp_path, LINEAR, "op: batch_norm, name: bn", between, "op: batch_norm, name: bn2")
    forward, *others = programs(plan).values()
    for schedule in forward.schedules:
        for norm in ("bn", "bn2"):
            count, variance = f"{norm}_num_batches_tracked", f"{norm}_running_var"
            (kernel,) = [k for k in schedule.kernels if count in {t.name for t in k.counts}]
            assert kernel.kind in ("column", "l2", "final_reduction") and {count, variance} <= {
                t.name for t in kernel.writes
            }
    assert not any(kernel.counts for program in others for kernel in program.kernels)


def test_element_wise_chains_are_one_pass() -> None:
    plan = committed("gemm_multiply_leakyrelu")
    assert kinds(plan) == {"forward": ["pointwise"], "backward": ["pointwise"]}


def test_batch_norm_holds_columns_and_has_an_evaluation_of_its_own() -> None:
    assert kinds(committed("matmul_bn_bias_div_swish")) == {
        "train_forward": ["column", "l2", "two_pass"],
        "train_backward": ["column", "l2", "two_pass"],
        "eval_forward": ["pointwise"],
        "eval_backward": ["pointwise"],
    }


def test_group_norm_holds_rows() -> None:
    plan = committed("gemm_groupnorm_hardtanh")
    assert kinds(plan) == {"forward": ["row", "two_pass"], "backward": ["row", "two_pass"]}
    assert programs(plan)["forward"].groups == "num_groups"


def test_batch_norm_without_running_statistics_has_one_variant(tmp_path) -> None:
    plan = planned(tmp_path, LINEAR, "op: batch_norm, name: bn, track_running_stats: false")
    assert kinds(plan) == {"forward": ["column", "l2", "two_pass"], "backward": ["column", "l2", "two_pass"]}


def test_a_reduction_over_the_other_axis_runs_before(tmp_path) -> None:
    plan = planned(tmp_path, LINEAR, "op: layer_norm, name: ln", "op: batch_norm, name: bn")
    column, two_pass = programs(plan)["train_forward"].schedules
    assert [each.kind for each in column.kernels] == ["row_reduction", "column"]
    assert [each.kind for each in two_pass.kernels] == ["row_reduction", "pointwise", "final_reduction", "pointwise"]
    assert column.kernels[0] == two_pass.kernels[0]


@pytest.mark.parametrize("name", SPECS)
def test_an_l2_kernel_does_what_the_first_kernels_of_the_two_pass_schedule_do(name: str) -> None:
    for program in programs(committed(name)).values():
        found = {schedule.kind: schedule.kernels for schedule in program.schedules}
        if "l2" in found:
            l2, *others = found["l2"]
            assert (*l2.parts, *others) == found["two_pass"]
            assert [part.kind for part in l2.parts] == ["pointwise", "final_reduction", "pointwise"]
            made, taken = set(), set()
            for part in l2.parts:
                taken |= {t.name for t in part.reads} - made
                made |= {t.name for t in part.writes}
            assert {t.name for t in l2.reads} == taken
            assert {t.name for t in l2.writes} == made


def test_the_l2_schedule_is_for_one_sum_over_the_rows_at_a_time(tmp_path) -> None:
    twice = planned(tmp_path, LINEAR, "op: batch_norm, name: bn", "op: relu", "op: batch_norm, name: bn2")
    assert kinds(twice)["train_forward"] == ["column", "two_pass"]
    rows = planned(tmp_path, LINEAR, "op: batch_norm, name: bn", "op: layer_norm, name: ln")
    assert kinds(rows)["train_forward"] == ["row", "two_pass"]


@pytest.mark.parametrize(
    ("name", "l2"), [("again", True), ("sum", True), ("other", False), ("of_rows", False), ("moments", False)]
)
def test_the_l2_schedule_is_for_what_is_read_again(name: str, l2: bool) -> None:
    """The last pass reads the same tensor or another one, or values of rows, or leaves a sum or moments of columns."""
    graph = Graph()
    x, other, rows = graph.tensor("x", MATRIX), graph.tensor("other", MATRIX), graph.tensor("rows", ROW)
    total = graph.add("sum", x, name="total", axes=CHANNEL)
    factor = {"other": other, "of_rows": graph.add("mul", x, rows, name="of_rows")}.get(name, x)
    y = graph.add("mul", factor, total, name="y")
    outputs = [Tensor("y", y, "output")]
    if name in ("sum", "moments"):
        columns = graph.add(name, y, name="columns", axes=CHANNEL)
        node = graph.add("mean", columns, name="mean") if name == "moments" else columns
        outputs.append(Tensor("columns", node, "accumulator"))
    inputs = [Tensor("x", x, "activation"), Tensor("other", other, "activation"), Tensor("rows", rows, "accumulator")]
    found = [schedule.kind for schedule in Scheduler("forward", inputs, outputs).program().schedules]
    assert found == ["column", *["l2"] * l2, "two_pass"]


def test_statistics_are_saved_and_the_rest_is_computed_again(tmp_path) -> None:
    plan = planned(tmp_path, LINEAR, "op: layer_norm, name: ln", "op: gelu", "op: rms_norm, name: rms")
    (variant,) = plan.variants
    assert [t.name for t in variant.saved] == ["ln_mean", "ln_rstd", "rms_rrms"]
    assert variant.needs_source


def test_what_the_gradient_does_not_read_is_not_saved(tmp_path) -> None:
    (variant,) = planned(tmp_path, LINEAR, "op: mul, constant: 2.0").variants
    assert not variant.saved and not variant.needs_source


def test_a_bias_before_batch_norm_takes_no_sum_and_says_why() -> None:
    backward = programs(committed("matmul_bn_bias_div_swish"))["train_backward"]
    assert any("matmul.bias is zero" in reason for reason in backward.reasons)


def test_targets_of_a_build_are_those_of_the_table() -> None:
    assert unknown_targets(["sm_90a", "sm_120"]) == unknown_targets(None) == []
    (unknown, of_one) = unknown_targets(["sm_70", "sm_90", "sm_80a"])
    assert "unsupported target 'sm_70'" in unknown and "unsupported target 'sm_80a'" in of_one


def test_reports_are_of_the_fastest_target() -> None:
    """Which need not be the one with the most multiprocessors."""
    assert fastest(["sm_89", "sm_90a"]) == DEVICES["sm_90"]
    assert DEVICES["sm_89"].multiprocessors > DEVICES["sm_90"].multiprocessors


@pytest.mark.parametrize(
    "tail", ["op: softmax", "op: layer_norm, name: norm", "op: batch_norm, name: norm", "op: relu"]
)
@pytest.mark.parametrize("running", ["a", "b"])
def test_the_bias_of_a_part_that_nothing_uses_has_a_gradient(tmp_path, running: str, tail: str) -> None:
    """Zeros, which follow from no sum: they are stored with the first sums of columns, whatever is reduced before."""
    layer = "op: linear, name: fc, out_features: 2 * hidden"
    plan = planned(tmp_path, layer, f"op: chunk, parts: [a, b], running: {running}", tail)
    for variant in plan.variants:
        for schedule in variant.backward.schedules:
            stored = [tensor.name for kernel in schedule.kernels for tensor in kernel.writes]
            assert {"grad_fc_bias_part1", "grad_fc_bias_part2"} <= {*stored}, schedule.kind


def test_an_output_that_no_kernel_stores_is_a_bug(tmp_path) -> None:
    program = planned(tmp_path, "op: softmax", "op: mul, parameter: a, shape: [width], init: ones").variants[0].backward
    kernels = program.schedules[0].kernels
    check_stored(program.outputs, kernels)
    with pytest.raises(InternalError, match="no kernel stores grad_a: backward_row"):
        check_stored(program.outputs, kernels[:1])
