"""Inputs that broadcast, and masks, in the epilogue of a split product: as kernels behind the product take them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.emulate import compile_kernels  # noqa: E402
from tests.emulate.building import write  # noqa: E402
from tests.emulate.epilogue import Both, normal  # noqa: E402
from tests.emulate.split import CONTRACTION, ONE_CLUSTER  # noqa: E402

pytestmark = pytest.mark.torch

SPEC = """
fusegen: 1
name: epilogue_inputs
dims: {batch: 4, positions: 16, features: 32, hidden: 48}
arguments: {features: {type: dim}, hidden: {type: dim}}
inputs:
  x: [batch, positions, features]
  scale: [batch, hidden]
  place: [positions, hidden]
  row: [batch, positions, 1]
  channel: [hidden]
  keep: [batch, positions, 1]
  every: [batch, positions, hidden]
dtypes: [float32]
chain:
  - {op: linear, name: fc, out_features: hidden, precision: fp32_split}
  - {op: mul, input: scale, plus: 1}
  - {op: add, input: place}
  - {op: mul, input: row}
  - {op: sub, input: channel, times: -2}
  - {op: mul, mask: keep}
  - {op: masked_fill, mask: every, constant: 0.5}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory, emulation_cache):
    root = tmp_path_factory.mktemp("epilogue")
    plan = write("epilogue_inputs", SPEC, root)
    kernels = root / plan.spec.name / "kernels.cu"
    library = compile_kernels(kernels, cache=emulation_cache, modes=[0], defines=[ONE_CLUSTER])
    return plan, fusegen.load(plan.spec.name, root), library, compile_kernels(CONTRACTION, cache=emulation_cache)


@pytest.mark.parametrize(
    "rows, channels, misalign", [(9, 12, ""), (70, 131, ""), (9, 12, "elements"), (9, 12, "vectors")]
)
def test_results_are_those_of_kernels_behind_the_product(built, rows, channels, misalign) -> None:
    plan, module_class, library, contraction = built
    assert plan.in_epilogue(plan.variants[0].forward)
    torch.manual_seed(rows)
    tensors = {}
    for name, node in {**plan.chain.further, **plan.chain.masks}.items():
        values = torch.randn(node.axes.count("N", rows), node.axes.count("C", channels))
        tensors[name] = values < 0.5 if name in plan.chain.masks else values
    both = Both(plan, plan.variants[0], library, module_class(23, channels))
    x, w = normal(rows, 23, 1), normal(channels, 23, 2)
    _, found, expected = both.run_both(contraction, x, w, tensors, rows, misalign)
    assert found.keys() == expected.keys() and found
    for name, value in expected.items():
        assert not value.isnan().any()
        assert torch.equal(found[name], value)
