"""The emitted kernels of every committed spec, run on the CPU: forward and backward, each schedule, odd sizes."""

from __future__ import annotations

import functools
import importlib
from operator import attrgetter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from fusegen.emulate import EmulationError  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from tests.chains.originals import CHAINS  # noqa: E402
from tests.emulate.building import forced_shapes, kernels_of  # noqa: E402
from tests.plan.planning import committed  # noqa: E402

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
# rows, channels, groups: a single row, odd and prime widths, widths that are and are not a multiple of a vector, groups
# that share a vector, segments shorter than a warp and longer than one.
SIZES = ((1, 48, 3), (2, 16, 4), (3, 33, 3), (9, 66, 2), (33, 128, 4), (70, 130, 2))
LONG = (5, 9000, 1)  # longer than a block's registers
# The kernels are the same templates for every chain: one chain of each kind shows what dtypes do to them. Of the others
# it is enough to see the formulas, exactly.
IN_EVERY_MODE = {"gemm_bias_hardtanh_mish_groupnorm", "gemm_multiply_leakyrelu", "matmul_bn_bias_div_swish"}
# In every mode: with vectors, and without.
EVERY_MODE = ((33, 128, 4), (9, 66, 2))
SCHEDULES = ("automatic", "persistent", "two_pass")
# Relative to the largest element; double precision leaves no room for anything but rounding. Counts are exact.
LIMITS = {torch.float64: 1e-11, torch.float32: 2e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.int64: 0.0}


@functools.cache
def library(name: str, mode: int, cache: Path):
    """The committed kernels in one mode."""
    return kernels_of(ROOT / "generated" / name, committed(name).modes[mode], cache, references=True)


def modes_of(chain, plan):
    return [mode for mode in plan.modes if chain.spec in IN_EVERY_MODE or mode.name == "float64"]


def cases():
    return [
        pytest.param(chain, size, id=f"{chain.spec}-{'x'.join(map(str, size))}")
        for chain in CHAINS.values()
        for size in (*SIZES, *([LONG] if chain.spec in IN_EVERY_MODE else []))
    ]


def prepared(chain, size, training: bool):
    """The generated module with every parameter and buffer away from its initial value. The linear layer's weight is
    small: its product is given."""
    plan = committed(chain.spec)
    generated = importlib.import_module(f"generated.{chain.spec}")
    torch.manual_seed(sum(size))
    module = getattr(generated, plan.spec.class_name)(*chain.arguments(4, size[1], size[2]))
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 1.5)
    return plan, module.train(training)


@pytest.mark.parametrize(("chain", "size"), cases())
def test_every_schedule_against_double_precision(chain, size, emulation_cache):
    rows, channels, _ = size
    checked = 0
    for training in (True, False):
        plan, module = prepared(chain, size, training)
        variant = plan.variants[0 if training else -1]
        if training and plan.chain.batch_norms and rows == 1:
            continue  # the module refuses it, as PyTorch does
        for mode in modes_of(chain, plan):
            if mode.roles["activation"] != "float64" and size not in EVERY_MODE:
                continue
            tensors = inputs(plan, mode, rows, channels)
            expected = tail_reference(plan, module, tensors, mode, training)
            count_batch(plan, module, training)
            for seed, schedule in enumerate(schedules_of(variant)):
                tail = EmulatedTail(plan, variant, library(chain.spec, mode.index, emulation_cache), module)
                checked += agreement(tail, tensors, mode, schedule, seed, expected)
    assert checked


def schedules_of(variant) -> list[str]:
    """Names of launch shapes for the kernels that a variant's programs have."""
    kinds = {schedule.kind for program in (variant.forward, variant.backward) for schedule in program.schedules}
    rows = variant.backward.schedules[0].kind == "row"
    return [*SCHEDULES, *["twice a share"] * rows, *["l2"] * ("l2" in kinds)]


def agreement(tail, tensors, mode, schedule: str, seed: int, expected) -> int:
    """The number of results that were compared: none where the schedule cannot hold the sizes."""
    try:
        found = tail.run(tensors, mode, shapes=forced_shapes(schedule), seed=seed).values
    except EmulationError as error:
        assert schedule in ("persistent", "twice a share", "l2"), error
        assert str(error).endswith("CUDA error 9"), error  # does not fit
        return 0
    shape = list(tensors[tail.variant.result_gradient].shape)
    return compare(found, expected, f"{tail.variant.name} {mode.name} {shape} {schedule}")


def inputs(plan, mode, rows: int, channels: int) -> dict[str, torch.Tensor]:
    """A source and a gradient of the result, in the dtypes of the mode."""
    activation, output = (getattr(torch, mode.roles[role]) for role in ("activation", "output"))
    source, gradient = torch.randn(rows, channels), torch.randn(rows, channels)
    return {plan.chain.source.name: source.to(activation), "grad_y": gradient.to(output)}


def count_batch(plan, module, training: bool) -> None:
    """What the module does before it calls the op: it counts where the running statistics are cumulative averages."""
    for buffer in plan.chain.buffers.values():
        norm = attrgetter(buffer.attribute.rpartition(".")[0])(module)
        if training and buffer.integer and norm.momentum is None:
            norm.num_batches_tracked.add_(1)


def compare(found, expected, where: str) -> int:
    for name, value in found.items():
        if name not in expected:
            continue  # saved statistics
        exact = expected[name]
        difference = (value.double().reshape(exact.shape) - exact).abs().max()
        scale = max(1.0, float(exact.abs().max()))
        assert float(difference) <= LIMITS[value.dtype] * scale, f"{where}: {name} is off by {float(difference):.3e}"
    return len(found)


each_norm = pytest.mark.parametrize(
    "chain",
    [CHAINS["matmul_bn_bias_div_swish"], CHAINS["gemm_bias_hardtanh_mish_groupnorm"]],
    ids=["batch_norm", "group_norm"],
)


@pytest.mark.parametrize("misalign", ["elements", "vectors"])
@pytest.mark.parametrize("schedule", ["persistent", "two_pass"])
@each_norm
def test_tensors_may_begin_anywhere(chain, schedule, misalign, emulation_cache):
    plan, module = prepared(chain, (33, 64, 8), True)
    mode = plan.modes[-1]
    tensors = {plan.chain.source.name: torch.randn(33, 64).double(), "grad_y": torch.randn(33, 64).double()}
    expected = tail_reference(plan, module, tensors, mode, True)
    count_batch(plan, module, True)
    tail = EmulatedTail(plan, plan.variants[0], library(chain.spec, mode.index, emulation_cache), module)
    compare(tail.run(tensors, mode, schedule=schedule, misalign=misalign).values, expected, f"misaligned {misalign}")


@each_norm
def test_the_order_of_threads_does_not_matter(chain, emulation_cache):
    """Bitwise: whatever order threads and blocks run in, sums are taken in the same order."""
    plan, module = prepared(chain, (33, 64, 8), False)
    mode = plan.modes[0]
    tensors = {plan.chain.source.name: torch.randn(33, 64), "grad_y": torch.randn(33, 64)}
    for schedule in ("persistent", "two_pass"):
        tail = EmulatedTail(plan, plan.variants[0], library(chain.spec, mode.index, emulation_cache), module)
        first, *others = (tail.run(tensors, mode, schedule=schedule, seed=seed).values for seed in range(6))
        for other in others:
            assert all(torch.equal(first[name], other[name]) for name in first)


def check_mode(chain, plan, module, mode, size, emulation_cache, first_seed: int = 0, **launch) -> None:
    """One mode in training against double precision, and to the same bits whatever the order of threads."""
    rows, channels, _ = size
    tensors = inputs(plan, mode, rows, channels)
    expected = tail_reference(plan, module, tensors, mode, True)
    count_batch(plan, module, True)
    tail = EmulatedTail(plan, plan.variants[0], library(chain.spec, mode.index, emulation_cache), module)
    found = tail.run(tensors, mode, seed=first_seed, **launch).values
    assert compare(found, expected, mode.name)
    other = tail.run(tensors, mode, seed=first_seed + 1, **launch).values
    assert all(torch.equal(found[name], other[name]) for name in found)


@pytest.mark.parametrize("channels", [64, 130])
@pytest.mark.parametrize("key", ["matmul_bn_bias_div_swish", "gemm_scale_bn", "gemm_batchnorm_gelu_relu"])
def test_columns_in_clusters_against_double_precision(key, channels, emulation_cache):
    chain, size = CHAINS[key], (79, channels, 1)
    for number, mode in enumerate(modes_of(chain, committed(chain.spec))):
        plan, module = prepared(chain, size, True)
        shapes = forced_shapes(f"clusters of {2 << number % 3}")
        check_mode(chain, plan, module, mode, size, emulation_cache, shapes=shapes)


@pytest.mark.parametrize("key", ["matmul_bn_bias_div_swish", "gemm_scale_bn", "gemm_batchnorm_gelu_relu"])
def test_l2_tiles_of_several_slices_against_double_precision(key, emulation_cache):
    """The last of three slices has 88 rows; behind batch norm of a scaled product, results leave sums of each slice."""
    chain, size = CHAINS[key], (600, 132, 1)
    for mode in modes_of(chain, committed(chain.spec)):
        plan, module = prepared(chain, size, True)
        check_mode(chain, plan, module, mode, size, emulation_cache, shapes=forced_shapes("l2"))


# The lanes of a group: some of a warp, as many as it takes or a power of two, with one vector or two, and some warps.
LENGTHS = (3, 5, 9, 17, 33, 44, 65, 72, 129, 257, 388, 1036)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("key", ["gemm_groupnorm_hardtanh", "gemm_bias_hardtanh_mish_groupnorm"])
def test_groups_of_any_length_against_double_precision(key, length, emulation_cache):
    chain, size = CHAINS[key], (27, 5 * length, 5)
    plan, module = prepared(chain, size, True)
    for number, mode in enumerate(modes_of(chain, plan)):
        check_mode(chain, plan, module, mode, size, emulation_cache, number, schedule="persistent")
