"""Forward programs in the epilogue of their split product: what they write is what kernels of their own would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.emulate import EmulatedLibrary, compile_kernels  # noqa: E402
from fusegen.explain.choices import Question  # noqa: E402
from fusegen.explain.text import answer  # noqa: E402
from fusegen.plan.load import plan_file  # noqa: E402
from fusegen.runtime.launchers import Call, Launcher  # noqa: E402
from tests.emulate.building import arguments, write  # noqa: E402
from tests.emulate.epilogue import Both, normal, split_spec  # noqa: E402
from tests.emulate.other_chains import HAND_PICKED  # noqa: E402
from tests.emulate.split import CONTRACTION, ONE_CLUSTER, check_product, hostile  # noqa: E402

pytestmark = pytest.mark.torch

SPEC = Path(__file__).resolve().parents[2] / "specs" / "gemm_multiply_leakyrelu_split.yaml"
# Further inputs, beside values of channels and a batch norm in evaluation; x in both operands; values of all.
CHAINS = ("two_inputs", "residual", "shapes", "linear_alone")
# Within a tile; odd, in several pairs of tiles along the rows; along the columns, with the last of a pair missing.
SIZES = ((9, 12), (301, 131), (70, 386))
DEPTH = 23


@pytest.fixture(scope="module")
def contraction(emulation_cache: Path) -> EmulatedLibrary:
    return compile_kernels(CONTRACTION, cache=emulation_cache)


@pytest.fixture(scope="module", params=CHAINS)
def chain(request, tmp_path_factory, emulation_cache: Path):
    """A chain's plan, class and kernels, for a GPU of one cluster: its blocks have several tiles."""
    name, root = f"epilogue_{request.param}", tmp_path_factory.mktemp("epilogue")
    other = HAND_PICKED[request.param]
    plan = write(name, split_spec(replace(other, rows=None), name), root)
    kernels = root / name / "kernels.cu"
    library = compile_kernels(kernels, cache=emulation_cache, modes=[0], defines=[ONE_CLUSTER])
    return plan, fusegen.load(name, root), library


@pytest.mark.parametrize("operands", (hostile, normal), ids=("hostile", "normal"))
@pytest.mark.parametrize(
    "rows, channels, misalign", [*((*size, "") for size in SIZES), (*SIZES[0], "elements"), (*SIZES[0], "vectors")]
)
def test_results_are_those_of_kernels_behind_the_product(
    chain, contraction: EmulatedLibrary, rows: int, channels: int, misalign: str, operands
) -> None:
    plan, module_class, library = chain
    torch.manual_seed(rows)
    depth = DEPTH if "in_features" in plan.spec.dims else channels
    module = module_class(*arguments(plan, rows, channels, 1, depth))
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 1.5)
    x, w = operands(rows, depth, 1), operands(channels, depth, 2)
    names = [name for name, node in plan.chain.tail_inputs.items() if node is not plan.chain.source]
    tensors = {name: torch.randn(rows, channels) for name in names}
    both = Both(plan, plan.variants[-1], library, module)
    product, found, expected = both.run_both(contraction, x, w, tensors, rows, misalign)
    exact = x.astype(np.float64)
    with np.errstate(all="ignore"):
        check_product(product, exact @ w.T.astype(np.float64), np.abs(exact) @ np.abs(w.T.astype(np.float64)))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True)


def test_other_types_and_other_devices_take_a_product_from_elsewhere(chain, emulation_cache: Path) -> None:
    plan, _, library = chain
    symbol = Launcher(plan, plan.variants[-1].forward).symbol
    for mode, rows, expected in ((0, 5, 1), (0, 0, 0), (plan.modes[-1].index, 5, 0)):
        assert library.call_int64(f"{symbol}_takes_product", Call(mode, rows, 12).struct) == expected


def test_a_plan_says_where_the_tail_runs(tmp_path: Path, emulation_cache: Path) -> None:
    text = answer(plan_file(SPEC), Question(rows=1024), emulation_cache)
    assert "  forward: epilogue\n    takes epilogue: what a thread has of a tile" in text
    assert "product kernel, pass 0: grid 66x1x2, block 384x1x1" in text and "pointwise kernel, pass 0" in text
    assert "epilogue" not in answer(plan_file(SPEC), Question(rows=1024, dtype="bf16"), emulation_cache)
    other = HAND_PICKED["two_inputs"]
    plan = write("norm", split_spec(other, "norm"), tmp_path)
    text = answer(plan, Question(), emulation_cache)
    assert "not   epilogue: a tile has some of the rows that it sums over, not all of them" in text
    assert "not   epilogue: modules leave a product of this size to the library" in text.partition("eval_forward")[2]
