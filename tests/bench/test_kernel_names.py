"""Kernels by the names that profilers give them, and their bytes from plan.json."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fusegen.plan.summary import summary
from tests.plan.planning import LINEAR, SPECS, committed, planned


def _module():
    path = Path(__file__).parents[2] / "benchmarks" / "kernel_names.py"
    spec = importlib.util.spec_from_file_location("fusegen_kernel_names", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


names = _module()
KernelName = names.KernelName

EVENTS = {
    "void fusegen::row_kernel<(anonymous namespace)::Forward<float, float, float>, 0, 4, true, 1, false, false>("
    "(anonymous namespace)::Forward<float, float, float>, fusegen::RowGrid)": KernelName("forward", "row", 0),
    "void fusegen::pointwise_kernel<(anonymous namespace)::TrainBackward<__nv_bfloat16, __nv_bfloat16, "
    "__nv_bfloat16>, 2, 8, false>((anonymous namespace)::TrainBackward<...>, long)": KernelName(
        "train_backward", "pointwise", 2
    ),
    # As Nsight Compute writes it.
    "void row_reduction_kernel<<unnamed>::EvalForward<__half, __half, float>, (int)1, (int)8, (bool)1>"
    "(T1, long)": KernelName("eval_forward", "row_reduction", 1),
    "void fusegen::l2_kernel<(anonymous namespace)::TrainForward<float, float, float>, 4>(int)": KernelName(
        "train_forward", "l2", None
    ),
    "void fusegen::scalar_reduction_kernel<(anonymous namespace)::Backward<float, float> >(int)": KernelName(
        "backward", "scalar_reduction", None
    ),
}
OTHERS = (
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
    "void other::row_kernel<float>(int)",
)


@pytest.mark.parametrize("event", EVENTS)
def test_a_kernel_of_ours(event: str) -> None:
    assert names.kernel_name(event) == EVENTS[event]


@pytest.mark.parametrize("event", OTHERS)
def test_any_other_kernel(event: str) -> None:
    assert names.kernel_name(event) is None


def test_what_tables_call_a_kernel() -> None:
    assert [str(name) for name in EVENTS.values()][0] == "forward row 0"
    assert [str(name) for name in EVENTS.values()][3] == "train_forward l2"


def test_bytes_of_each_schedule(tmp_path: Path) -> None:
    """Batch norm behind group norm: the groups' pass, the columns' pass, then the results."""
    plan = planned(tmp_path, LINEAR, "op: group_norm, name: gn, num_groups: 4", "op: batch_norm, name: bn")
    found = {str(name): count for name, count in names.planned_bytes(summary(plan)).items()}
    element, group, channel = 16 * 64 * 4, 16 * 4 * 4, 64 * 4
    forward = {name: count for name, count in found.items() if name.startswith("train_forward")}
    assert set(forward) == {
        *(f"train_forward {kind}" for kind in ("row_reduction 0", "column 1", "pointwise 1", "final_reduction 1")),
        "train_forward pointwise 2",
    }
    # It reads the product and the linear layer's bias; it leaves a mean and 1 / deviation of each group.
    assert forward["train_forward row_reduction 0"] == element + channel + 2 * group
    assert forward["train_forward pointwise 2"] > 2 * element


@pytest.mark.parametrize("name", SPECS)
def test_kernels_of_a_plan_have_names_of_their_own(name: str) -> None:
    plan = committed(name)
    found = names.planned_bytes(summary(plan))
    planned_names = {kernel.name for program in plan.programs for kernel in program.kernels}
    assert len(found) == len(planned_names)
    for program in plan.programs:
        assert KernelName(program.name, "pointwise", len(program.phases)) in found
