"""Every launch shape that a tuning may choose has the default's results on the GPU, at sizes beyond the emulator's."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.plan.modules.module import module_of  # noqa: E402
from fusegen.plan.sizes.chain_sizes import LARGE, typical  # noqa: E402
from fusegen.plan.sizes.module_sizes import several  # noqa: E402
from fusegen.plan.tunings.tuning_space import tuning_space  # noqa: E402
from fusegen.tune.agreement import agreeing  # noqa: E402
from fusegen.tune.chain import Chain  # noqa: E402
from fusegen.tune.device import current_target  # noqa: E402
from fusegen.tune.launchers import compile_launchers  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.nvcc, pytest.mark.gpu]

ROOT = Path(__file__).resolve().parents[2]
# Column and pointwise kernels, row kernels with column sums, and a residual input.
SPECS = ("matmul_bn_bias_div_swish", "gemm_bias_hardtanh_mish_groupnorm", "gemm_sigmoid_scaling_residualadd")


@pytest.fixture(scope="module")
def launchers(tmp_path_factory):
    return compile_launchers(SPECS, ROOT / "generated", tmp_path_factory.mktemp("launchers"), current_target())


@torch.no_grad()
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", SPECS)
def test_every_candidate_has_the_results_of_the_default(spec: str, dtype: str, launchers) -> None:
    plan = plan_file(ROOT / "specs" / f"{spec}.yaml")
    mode = next(mode for mode in plan.modes if mode.plain and mode.roles["activation"] == dtype)
    chain = Chain(plan, mode, importlib.import_module(f"generated.{spec}"), launchers[spec], "cuda")
    for size in (typical(plan), *several(module_of(plan), LARGE)):
        for program in chain.programs(size):
            choices = {shapes: shapes for shapes in tuning_space(program.program)}
            found = agreeing(program, choices)  # raises where one is wrong
            assert len(found) > 1 or len(choices) == 1
