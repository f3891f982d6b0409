"""Chains that no committed spec has, in double precision: norms in each other's way, residuals, reuse of values."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.emulate import EmulationError  # noqa: E402
from fusegen.emulate.package import emulate_package  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from tests.emulate.building import forced_shapes, kernels_of, write  # noqa: E402
from tests.emulate.other_chains import HAND_PICKED, RandomChain  # noqa: E402
from tests.emulate.test_chains import agreement, compare, count_batch, schedules_of  # noqa: E402

pytestmark = pytest.mark.torch

SIZES = ((3, 12), (33, 20))
CASES = HAND_PICKED | {f"random_{seed}": RandomChain(seed).chain() for seed in range(6)}


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_against_double_precision(name, emulation_cache, tmp_path):
    other = CASES[name]
    plan = write(name, other.spec(name), tmp_path)
    module_class = fusegen.load(name, tmp_path)
    mode = plan.modes[-1]
    library = kernels_of(tmp_path / name, mode, emulation_cache, checked=False, optimised=False)
    checked = 0
    for rows, channels in SIZES:
        rows, channels = other.rows or rows, other.channels or channels
        for training in (True, False):
            torch.manual_seed(rows)
            module = build(module_class, plan, channels)
            variant = plan.variants[0 if training else -1]
            names = [plan.chain.source.name, *plan.chain.tail_inputs, variant.result_gradient]
            tensors = {each: torch.randn(rows, channels).double() for each in dict.fromkeys(names)}
            expected = tail_reference(plan, module, tensors, mode, training)
            count_batch(plan, module, training)
            for seed, schedule in enumerate(schedules_of(variant)):
                tail = EmulatedTail(plan, variant, library, module)
                checked += agreement(tail, tensors, mode, schedule, seed, expected)
    assert checked


@pytest.mark.parametrize("name", ["layer_norm_of_input", "rms_norm_of_input"])
def test_norms_of_the_input_in_16_bits_up_to_what_registers_hold_and_beyond(name, emulation_cache, tmp_path):
    plan, library, module_class, mode = in_16_bits(name, emulation_cache, tmp_path)
    for channels, persistent in ((4096, True), (16384, True), (16392, False)):
        module = build(module_class, plan, channels)
        tensors = {each: torch.randn(3, channels).bfloat16() for each in (plan.chain.source.name, "grad_y")}
        expected = tail_reference(plan, module, tensors, mode, True)
        tail = EmulatedTail(plan, plan.variants[0], library, module)
        assert compare(tail.run(tensors, mode).values, expected, f"{channels}")
        try:
            tail.run(tensors, mode, schedule="persistent")
            assert persistent
        except EmulationError as error:
            assert not persistent and str(error).endswith("CUDA error 9"), error


@pytest.mark.parametrize(
    "name", ["batch_before_layer", "layer_before_batch", "group_before_layer", "rms_between_groups"]
)
def test_rows_in_16_bits_beside_other_phases(name, emulation_cache, tmp_path):
    """Whose kernels have column sums decides how a thread gets twice its share of a row; blocks take several turns."""
    plan, library, module_class, mode = in_16_bits(name, emulation_cache, tmp_path, multiprocessors=1)
    channels = CASES[name].channels or 96
    module = build(module_class, plan, channels)
    tensors = {each: torch.randn(203, channels).bfloat16() for each in (plan.chain.source.name, "grad_y")}
    expected = tail_reference(plan, module, tensors, mode, True)
    for schedule in ("persistent", "twice a share"):
        tail = EmulatedTail(plan, plan.variants[0], library, module)
        assert compare(tail.run(tensors, mode, shapes=forced_shapes(schedule)).values, expected, schedule)


@pytest.mark.parametrize("channels", [31, 33, 762])
@pytest.mark.parametrize("name", ["layer_norm_of_input", "layer_norm_without_bias"])
def test_odd_rows_in_16_bits(name, channels, emulation_cache, tmp_path):
    """By the vectors that a row touches, or by runs: backward, with eight columns a thread. Where they begin, rows of
    762 touch as many vectors as three warps have, or one more: then a fourth warp has values, else none."""
    plan, library, module_class, mode = in_16_bits(name, emulation_cache, tmp_path, multiprocessors=1)
    module = build(module_class, plan, channels)
    names = [plan.chain.source.name, *plan.chain.tail_inputs, "grad_y"]
    tensors = {each: torch.randn(41, channels).bfloat16() for each in dict.fromkeys(names)}
    expected = tail_reference(plan, module, tensors, mode, True)
    for schedule in ("persistent", "twice a share"):
        tail = EmulatedTail(plan, plan.variants[0], library, module)
        found = tail.run(tensors, mode, shapes=forced_shapes(schedule)).values
        assert compare(found, expected, schedule)
        again = tail.run(tensors, mode, shapes=forced_shapes(schedule), seed=1).values
        assert all(torch.equal(found[name], again[name]) for name in found)


@pytest.mark.parametrize("groups, channels, bits", [(3, 9, 32), (5, 10, 32), (4, 36, 16)])
@pytest.mark.parametrize("name", ["group_before_layer", "rms_between_groups"])
def test_groups_of_rows_whose_last_thread_has_fewer_columns(name, groups, channels, bits, emulation_cache, tmp_path):
    """What is known of a column's group is not asked for behind the last one."""
    if bits == 16:
        plan, library, module_class, mode = in_16_bits(name, emulation_cache, tmp_path, multiprocessors=1)
    else:
        plan = write(name, CASES[name].spec(name), tmp_path)
        module_class, mode = fusegen.load(name, tmp_path), plan.modes[0]
        library = kernels_of(tmp_path / name, mode, emulation_cache)
    module = build(module_class, plan, channels, groups)
    dtype = torch.bfloat16 if bits == 16 else torch.float32
    tensors = {each: torch.randn(4, channels).to(dtype) for each in (plan.chain.source.name, "grad_y")}
    expected = tail_reference(plan, module, tensors, mode, True)
    tail = EmulatedTail(plan, plan.variants[0], library, module)
    assert compare(tail.run(tensors, mode, shapes=forced_shapes("twice a share")).values, expected, name)


@pytest.mark.parametrize("rows, channels", [(5, 4104), (5, 4097), (70, 2056), (30, 3001)])
@pytest.mark.parametrize(
    "name, parameter",
    [
        ("layer_norm_of_input", "bfloat16"),
        ("layer_norm_without_bias", "bfloat16"),
        # Under autocast: constants of two sizes, of which the linear layer's bias is not read.
        ("layer_norm_without_bias", "float32"),
    ],
)
def test_rows_of_large_blocks_in_16_bits(name, parameter, rows, channels, emulation_cache, tmp_path):
    """Blocks take several rows, in instances of their own (`large` in test_row_schedules.py): of 4104 channels forward,
    of 2056 backward, in as many turns; of 3001 forward, as a multiprocessor then holds more of them."""
    plan, library, module_class, mode = in_16_bits(name, emulation_cache, tmp_path, 1, parameter)
    module = build(module_class, plan, channels)
    names = [plan.chain.source.name, *plan.chain.tail_inputs, "grad_y"]
    tensors = {each: torch.randn(rows, channels).bfloat16() for each in dict.fromkeys(names)}
    expected = tail_reference(plan, module, tensors, mode, True)
    tail = EmulatedTail(plan, plan.variants[0], library, module)
    found = tail.run(tensors, mode).values
    assert compare(found, expected, f"{channels}")
    other = tail.run(tensors, mode, seed=1).values
    assert all(torch.equal(found[name], other[name]) for name in found)


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("rows, channels", [(4, 4100), (5, 4097), (34, 5120), (3, 16380)])
@pytest.mark.parametrize("name", ["layer_before_batch", "layer_norm_without_bias"])
def test_rows_that_a_cluster_holds(name, rows, channels, bits, emulation_cache, tmp_path):
    """With column sums, backward. Some of the blocks, or of their warps, have no column."""
    if bits == 16:
        plan, library, module_class, mode = in_16_bits(name, emulation_cache, tmp_path, multiprocessors=1)
    else:
        plan = write(name, CASES[name].spec(name), tmp_path, 1)
        module_class, mode = fusegen.load(name, tmp_path), plan.modes[0]
        library = kernels_of(tmp_path / name, mode, emulation_cache)
    module = build(module_class, plan, channels)
    dtype = torch.bfloat16 if bits == 16 else torch.float32
    names = [plan.chain.source.name, *plan.chain.tail_inputs, "grad_y"]
    tensors = {each: torch.randn(rows, channels).to(dtype) for each in dict.fromkeys(names)}
    expected = tail_reference(plan, module, tensors, mode, True)
    tail = EmulatedTail(plan, plan.variants[0], library, module)
    shapes = forced_shapes("persistent if it fits")
    found = tail.run(tensors, mode, shapes=shapes).values
    assert compare(found, expected, f"{channels}")
    other = tail.run(tensors, mode, shapes=shapes, seed=1).values
    assert all(torch.equal(found[name], other[name]) for name in found)


@pytest.mark.parametrize("dtype, channels", [("float64", 2100), ("float32", 4200)])
def test_large_blocks_that_keep_constants_and_clusters_behind_a_batch_norm(dtype, channels, emulation_cache, tmp_path):
    """Each thread four columns in double precision, of which the usual instance keeps constants in registers."""
    name = "layer_norm_bare_of_batch_norm"
    plan = write(name, CASES[name].spec(name), tmp_path)
    module = build(fusegen.load(name, tmp_path), plan, channels)
    mode = next(mode for mode in plan.modes if set(mode.roles.values()) <= {dtype, "int64"})
    library = kernels_of(tmp_path / name, mode, emulation_cache)
    tensors = {each: torch.randn(3, channels).to(getattr(torch, dtype)) for each in (plan.chain.source.name, "grad_y")}
    expected = tail_reference(plan, module, tensors, mode, False)
    tail = EmulatedTail(plan, plan.variants[-1], library, module)
    assert compare(tail.run(tensors, mode, schedule="persistent").values, expected, name)


def test_a_negative_momentum_of_one_norm_counts_the_other_one_once(emulation_cache, tmp_path):
    """PyTorch computes the whole chain then, before anything has been counted for the kernels."""
    name = "two_batch_norms"
    plan = write(name, CASES[name].spec(name), tmp_path)
    package = emulate_package(tmp_path / name, cache=emulation_cache, checked=False)
    module = build(getattr(package, plan.spec.class_name), plan, 12)
    module.bn.momentum, module.bn2.momentum = None, -0.2
    other, x = copy.deepcopy(module), torch.randn(7, 12)
    assert torch.equal(module(x), other.fusegen_reference(x))
    assert all(torch.equal(a, b) for a, b in zip(module.buffers(), other.buffers(), strict=True))


def in_16_bits(name, cache, root, multiprocessors=None, parameter="bfloat16"):
    """A chain's plan, its compiled kernels, its module's class, and the bfloat16 mode with parameters of that dtype."""
    dtypes = ", ".join(sorted({"bfloat16", parameter}))
    text = CASES[name].spec(name).replace("dtypes: [float32]", f"dtypes: [{dtypes}]")
    plan = write(name, text, root, multiprocessors)
    roles = {"activation": "bfloat16", "parameter": parameter}
    mode = next(mode for mode in plan.modes if roles.items() <= mode.roles.items())
    return plan, kernels_of(root / name, mode, cache), fusegen.load(name, root), mode


def build(module_class, plan, channels: int, groups: int = 4):
    """An instance with every parameter and buffer away from its initial value. A linear layer's weight is small: its
    product is given."""
    sizes = {"features": channels, "in_features": 4, "groups_of_gn": groups, "scale_by": 1.25}
    module = module_class(**{name: sizes[name] for name in plan.spec.arguments})
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 1.5)
    return module
