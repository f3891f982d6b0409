"""What folding is for: fewer operations for each element, counted, and nowhere more."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusegen.plan.load import plan_file
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Program
from fusegen.plan.schedules.cost import program_operations
from fusegen.plan.schedules.folding import Folding
from tests.emulate.other_chains import HAND_PICKED, RandomChain
from tests.plan.planning import LINEAR, ROOT, SPECS, committed, planned

OTHERS = HAND_PICKED | {f"random_{seed}": RandomChain(seed).chain() for seed in range(12)}


def programs(plan: Plan) -> dict[str, Program]:
    return {p.name: p for variant in plan.variants for p in (variant.forward, variant.backward)}


def step_by_step(path: Path) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folding, "program", Folding.unfolded)
        return plan_file(path)


def lines(program: Program) -> list[str]:
    """The values of the program's last kernel over elements, as `name = op(operands)`."""
    kernel = [k for k in program.schedules[-1].kernels if k.kind == "pointwise"][-1]
    return [f"{n.name} = {n.op}({', '.join(o.name for o in n.operands)})" for n in kernel.passes[-1].values]


def sums(program: Program) -> int:
    return sum(len(each.sums) for kernel in program.kernels for each in kernel.passes)


def assert_no_worse(folded: Plan, plain: Plan) -> None:
    for name, before in programs(plain).items():
        after = programs(folded)[name]
        counts, limits = program_operations(after), program_operations(before)
        assert counts.keys() == limits.keys() and all(counts[kind] <= limits[kind] for kind in counts), name
        assert sums(after) <= sums(before) and len(after.kernels) <= len(before.kernels), name


@pytest.mark.parametrize("name", SPECS)
def test_no_committed_chain_gets_worse(name: str) -> None:
    assert_no_worse(committed(name), step_by_step(ROOT / "specs" / f"{name}.yaml"))


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_chain_gets_worse(tmp_path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(OTHERS[name].spec(name), encoding="utf-8")
    assert_no_worse(plan_file(path), step_by_step(path))


def test_batch_norm_with_its_surroundings() -> None:
    """Of each element: x - center, one multiply-add, silu's two; statistics read the product as it is."""
    folded = {n: program_operations(p) for n, p in programs(committed("matmul_bn_bias_div_swish")).items()}
    assert folded["train_forward"] == {"column": 3 + 4, "two_pass": 3 + 4}
    # Sums: centered, normalised, silu's gate, slope and gradient, two sums; then the first five again and
    # h - (t q + s), times k r.
    assert folded["train_backward"] == {"column": 7 + 8, "two_pass": 7 + 8}
    assert folded["eval_forward"] == {"pointwise": 4}
    before = {
        n: program_operations(p) for n, p in programs(step_by_step(ROOT / "specs" / "gemm_scale_bn.yaml")).items()
    }
    after = {n: program_operations(p) for n, p in programs(committed("gemm_scale_bn")).items()}
    assert all(after[name][kind] <= 0.7 * count for name in after for kind, count in before[name].items())


def test_names_say_what_coefficients_are() -> None:
    found = programs(committed("matmul_bn_bias_div_swish"))
    assert lines(found["train_forward"])[0] == "bn_centered = sub(matmul_product, bn_center)"
    names = {node.name for p in found.values() for k in p.kernels for node in (*k.setup, *k.passes[-1].results)}
    assert {"bn_center", "bn_scale", "bn_shift", "bn_grad_mean", "bn_grad_slope"} <= names
    assert "coefficient" not in names


def test_what_a_sum_needs_stays_a_value(tmp_path) -> None:
    """Group norm's weight multiplies the normalised value, which its gradient sums: folding would cost an operation."""
    plan = planned(tmp_path, LINEAR, "op: group_norm, name: gn, num_groups: 4", "op: silu")
    values = lines(programs(plan)["backward"])
    assert any(line.startswith("gn_hat = ") for line in values)


def test_what_is_saved_is_what_torch_saves(tmp_path) -> None:
    """The mean and 1 / deviation are those of the scaled and shifted values, whatever the moments are taken of."""
    plan = planned(tmp_path, LINEAR, "op: mul, parameter: s, shape: [hidden], init: randn", "op: batch_norm, name: bn")
    variant = plan.variants[0]
    assert [tensor.name for tensor in variant.saved] == ["bn_mean", "bn_rstd"]
    (moments,) = variant.forward.schedules[-1].kernels[0].partial_sums
    assert repr(moments.operands[0]).endswith("mul(gemm_product, s)")
    mean = next(t.node for t in variant.forward.outputs if t.name == "bn_mean")
    assert (mean.op, mean.operands[1].name) == ("add", "bn_mean_shift")
