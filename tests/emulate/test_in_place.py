"""Kernels that write the gradient of a linear layer's result over that result: every access is looked at, and no bit
is another than with memory of its own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulationError  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail  # noqa: E402
from tests.chains.originals import CHAINS  # noqa: E402
from tests.emulate.building import forced_shapes  # noqa: E402
from tests.emulate.test_chains import IN_EVERY_MODE, inputs, library, prepared, schedules_of  # noqa: E402
from tests.plan.planning import committed  # noqa: E402

pytestmark = pytest.mark.torch

LINEAR = [chain for chain in CHAINS.values() if committed(chain.spec).variants[0].overwrites_product]
# rows, channels, groups, which begin with a vector: a few lanes, a warp and more, and rows longer than the registers of
# a block; columns in clusters. Several slices of the L2.
SIZES = ((2, 16, 2), (33, 128, 4), (79, 264, 1), (5, 9216, 1))
SLICES = (600, 136, 1)


def cases(sizes):
    # Long rows take long, and are of one kind of kernels.
    return [
        pytest.param(chain, size, id=f"{chain.spec}-{'x'.join(map(str, size))}")
        for chain in LINEAR
        for size in sizes
        if size[1] < 9000 or chain.spec in IN_EVERY_MODE or "layernorm" in chain.spec
    ]


def compare(chain, size, schedules, cache) -> int:
    """Runs schedules with a gradient of its own and in place, in several orders of threads. Returns how many ran."""
    rows, channels, _ = size
    ran = 0
    for training in (True, False):
        plan, module = prepared(chain, size, training)
        variant = plan.variants[0 if training else -1]
        if not variant.overwrites_product or (not training and len(plan.variants) == 1):
            continue
        every = chain.spec in IN_EVERY_MODE and channels == 128
        for mode in plan.modes if every else plan.modes[-1:]:
            tensors = inputs(plan, mode, rows, channels)
            tail = EmulatedTail(plan, variant, library(chain.spec, mode.index, cache), module)
            for schedule in schedules or (*schedules_of(variant), "clusters of 2"):
                shapes = forced_shapes(schedule)
                try:
                    expected = tail.run(tensors, mode, shapes=shapes).values
                except EmulationError as error:
                    assert str(error).endswith("CUDA error 9"), error  # does not fit
                    continue
                for seed in range(2):
                    found = tail.run(tensors, mode, shapes=shapes, in_place=True, seed=seed).values
                    where = f"{variant.name} {mode.name} {schedule}"
                    assert all(torch.equal(found[name], each) for name, each in expected.items()), where
                ran += 1
    return ran


@pytest.mark.parametrize(("chain", "size"), cases(SIZES))
def test_in_place(chain, size, emulation_cache) -> None:
    assert compare(chain, size, (), emulation_cache)


@pytest.mark.parametrize("key", ["matmul_bn_bias_div_swish", "gemm_scale_bn"])
def test_in_place_in_the_l2(key, emulation_cache) -> None:
    assert compare(CHAINS[key], SLICES, ("l2",), emulation_cache)
