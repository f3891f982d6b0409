"""Launch shapes of each target, whatever the other targets of a spec and of a build are."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from fusegen.emulate import Buffer, EmulatedLibrary, compile_kernels
from fusegen.plan.launches.devices import DEVICES
from fusegen.plan.load import plan_file
from fusegen.plan.modules.module import module_of
from fusegen.plan.modules.plan import Plan
from fusegen.render.cuda import render_kernels
from fusegen.render.output import write_files
from fusegen.render.package import render_all
from fusegen.runtime.launchers import Call, Launcher
from fusegen.tune.launchers import EmulatedLaunchers
from tests.emulate.building import compiled_shapes

SPECS = Path(__file__).resolve().parents[2] / "specs"

TABLE = """
#include <algorithm>
#include "../support/devices.cuh"

namespace {
int fill(const fusegen::Target& target, int64_t* found) {
  const int64_t values[] = {target.capability, target.multiprocessors, target.most_cluster, target.shared_bytes,
                            target.l2_bytes};
  std::copy(values, values + 5, found);
  return cudaGetLastError();
}
}  // namespace

extern "C" int line(int number, int64_t* found) { return fill(fusegen::kTargets[number], found); }
extern "C" int at_hand(int, int64_t* found) { return fill(fusegen::current_target(), found); }
extern "C" int64_t lines() { return std::end(fusegen::kTargets) - std::begin(fusegen::kTargets); }
"""


def target(library: EmulatedLibrary, function: str, number: int = 0) -> list[int]:
    """Capability, multiprocessors, blocks of a cluster, shared memory of a block, L2."""
    found = Buffer.poisoned([5], torch.int64)
    library.call(function, number, found)
    return found.tensor().tolist()


def test_the_tables_of_planning_and_of_launch_shapes_have_the_same_gpus(tmp_path: Path, emulation_cache: Path) -> None:
    library = compiled_shapes(TABLE, tmp_path, emulation_cache)
    lines = [target(library, "line", number)[:3] for number in range(library.call_int64("lines"))]
    assert lines == [
        [int(each.target.removeprefix("sm_")), each.multiprocessors, each.most_cluster] for each in DEVICES.values()
    ]


@pytest.mark.parametrize(
    "capability, compiled, clusters",
    [
        (90, "800,900", 8),
        (90, "800", 1),  # that code is compiled again, and has none
        (103, "900", 8),  # as this is, and has some
        (103, "800,900", 1),
    ],
)
def test_clusters_are_made_where_the_code_that_runs_has_them(
    tmp_path: Path, emulation_cache: Path, capability: int, compiled: str, clusters: int
) -> None:
    defines = [f"FUSEGEN_EMULATED_CAPABILITY={capability}", f"__CUDA_ARCH_LIST__={compiled}"]
    found = target(compiled_shapes(TABLE, tmp_path, emulation_cache, defines=defines), "at_hand")
    assert found[:3] == [capability, DEVICES[f"sm_{capability}"].multiprocessors, clusters]


def test_a_gpu_without_a_line_is_asked(tmp_path: Path, emulation_cache: Path) -> None:
    defines = ["FUSEGEN_EMULATED_CAPABILITY=88", "FUSEGEN_EMULATED_MULTIPROCESSORS=10"]
    library = compiled_shapes(TABLE, tmp_path, emulation_cache, defines=defines)
    assert target(library, "at_hand") == [88, 10, 1, 99 << 10, 6 << 20]


def with_targets(name: str, targets: str, root: Path) -> Plan:
    """The plan of a committed spec with other targets."""
    text = (SPECS / f"{name}.yaml").read_text(encoding="utf-8")
    assert "targets: [sm_90]" in text
    root.mkdir(exist_ok=True)
    (root / f"{name}.yaml").write_text(text.replace("targets: [sm_90]", f"targets: [{targets}]"), encoding="utf-8")
    return plan_file(root / f"{name}.yaml")


def test_another_target_changes_nothing_of_the_kernels(tmp_path: Path) -> None:
    for name in ("gemm_batchnorm_gelu_relu", "linear_layernorm_gelu"):
        one, both = (with_targets(name, each, tmp_path / each[-3:]) for each in ("sm_90", "sm_90, sm_120, sm_75"))
        assert render_kernels(one) == render_kernels(both)


SIZES = tuple(itertools.product((100, 1024, 16384), (256, 1000, 8192, 16384)))


@pytest.mark.parametrize("name", ["gemm_batchnorm_gelu_relu", "linear_layernorm_gelu"])
def test_another_target_of_a_build_changes_nothing_of_what_runs(
    name: str, tmp_path: Path, emulation_cache: Path
) -> None:
    """On a GPU with clusters, and on one without; which run other kernels."""
    plan = with_targets(name, "sm_90", tmp_path)
    write_files(render_all([module_of(plan)]), tmp_path)

    def choices(capability: int, compiled: str) -> list[str]:
        defines = [f"FUSEGEN_EMULATED_CAPABILITY={capability}", f"__CUDA_ARCH_LIST__={compiled}"]
        launchers = EmulatedLaunchers(
            compile_kernels(
                tmp_path / name / "kernels.cu",
                cache=emulation_cache,
                defines=defines,
                modes=[0],
                checked=False,
                optimised=False,
            )
        )
        symbols = [Launcher(plan, each).symbol for each in plan.programs]
        return [launchers.explain(each, Call(0, *size)) for each in symbols for size in SIZES]

    hopper, older = choices(90, "900"), choices(80, "800")
    assert hopper == choices(90, "800,900") and older == choices(80, "800,900")
    assert hopper != older
