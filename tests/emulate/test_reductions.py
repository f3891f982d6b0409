"""Softmax and reductions over the channels, in every schedule, against double precision."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

torch = pytest.importorskip("torch")

import fusegen  # noqa: E402
from fusegen.emulate import EmulationError  # noqa: E402
from fusegen.errors import SpecError  # noqa: E402
from fusegen.verify.subjects.emulated import EmulatedTail, tail_reference  # noqa: E402
from tests.emulate.building import forced_shapes, kernels_of, write  # noqa: E402
from tests.emulate.other_chains import BN, GELU, LN, Other, parameter  # noqa: E402
from tests.emulate.test_chains import agreement, count_batch, schedules_of  # noqa: E402
from tests.emulate.test_other_chains import build  # noqa: E402

pytestmark = pytest.mark.torch

SAVE, ADD = "{op: add, constant: 0.5, save: v}", "{op: add, value: v}"
SUM, MEAN, LOGSUMEXP = (f"{{op: {op}, keepdim: true}}" for op in ("sum", "mean", "logsumexp"))
MAX, MIN, AMAX, AMIN = (f"{{op: {op}, keepdim: true}}" for op in ("max", "min", "amax", "amin"))
VAR, STD, NORM = (f"{{op: {op}, keepdim: true}}" for op in ("var", "std", "norm"))
BIASED, L1 = "{op: std, keepdim: true, correction: 0}", "{op: norm, keepdim: true, p: 1}"
LESS = "{op: sub, value: v, swap: true}"
CHAINS = {
    "softmax": Other(("{op: softmax}",)),
    "softmax_of_input": Other(("{op: softmax}", "{op: mul, input: x}"), linear=False),
    "log_softmax": Other(("{op: mul, constant: 3}", "{op: log_softmax, dim: 1}")),
    "softmax_between_norms": Other((BN, "{op: softmax}", GELU, LN)),
    # y = x + sum(x): the gradient has a term for each.
    "sum": Other((SAVE, SUM, ADD)),
    "sum_alone": Other((SUM, parameter("mul", "w", "[features]")), linear=False),
    # A product, for log_softmax is the same of a difference whatever is subtracted.
    "logsumexp_between": Other(("{op: gelu, save: v}", LOGSUMEXP, "{op: mul, value: v}", "{op: log_softmax}")),
    # Behind a linear layer's bias: no kernel computes these again to the last bit of another's.
    "max_and_amax": Other(
        (BN, "{op: silu, save: v}", MAX, LESS, "{op: tanh, save: w}", AMAX, "{op: mul, value: w}", LN)
    ),
    "min_and_max": Other(
        ("{op: tanh, save: v}", MIN, LESS, "{op: square, save: w}", MAX, "{op: div, value: w, swap: true}")
    ),
    "amin": Other((SAVE, AMIN, LESS, LN)),
    # By its deviation, and by what is left of that.
    "spread": Other((SAVE, STD, "{op: div, value: v, swap: true, save: w}", VAR, "{op: mul, value: w}")),
    "biased": Other(("{op: softmin, save: v}", BIASED, ADD, "{op: normalize, p: 1, eps: 1e-3}"), linear=False),
    "norms": Other((SAVE, NORM, "{op: mul, value: v, save: w}", L1, "{op: sub, value: w}", "{op: normalize}")),
    # The gradient of one factor of the values of all rows.
    "one_factor_of_rows": Other((SAVE, SUM, parameter("mul", "w", "[1]"), ADD)),
    "several": Other(
        (SAVE, SUM, "{op: tanh}", ADD, "{op: silu, save: w}", MEAN, "{op: mul, value: w}", "{op: softmax}")
    ),
}
# A linear layer's input is narrow, for its weight is not read: its product is given.
CHAINS = {name: replace(other, square=False) for name, other in CHAINS.items()}
EXTREMES = {
    "largest_of_x": Other((MAX, "{op: add, input: x}"), linear=False),
    "smallest_of_x": Other((MIN, "{op: add, input: x}"), linear=False),
    # Of what lies in memory, and of what the forward pass has to store.
    "all_largest_of_x": Other((AMAX, "{op: add, input: x}"), linear=False),
    "all_smallest_of_x": Other((AMIN, "{op: add, input: x}"), linear=False),
    "all_largest_of_value": Other(("{op: mul, constant: 2, save: v}", AMAX, "{op: add, value: v}"), linear=False),
    # PyTorch subtracts no infinity from another.
    "logsumexp_of_x": Other((LOGSUMEXP, "{op: add, input: x}"), linear=False),
    # Zero for the row of zeros, where the gradient of a root is infinite.
    "spread_and_norm_of_x": Other((STD, "{op: add, input: x, save: v}", NORM, "{op: add, value: v}"), linear=False),
}
# Rows of part of a warp, of a warp, of a block, of a large block, and those that registers do not hold.
SIZES = ((33, 12), (5, 33), (4, 128), (3, 1025), (3, 6000), (2, 20001))


# What others do, too: the sum beside its operand with a factor between; amax and min in a chain, and amin in memory.
COVERED = ("sum", "amin", "all_largest_of_x")


def marked(chains: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(name, marks=[pytest.mark.slow] if name in COVERED else []) for name in chains]


@pytest.mark.parametrize("name", marked(CHAINS))
def test_every_schedule_against_double_precision(name: str, emulation_cache: Path, tmp_path: Path) -> None:
    other = CHAINS[name]
    plan = write(name, other.spec(name), tmp_path)
    mode = plan.modes[0]
    library = kernels_of(tmp_path / name, mode, emulation_cache, checked=False)
    module_class = fusegen.load(name, tmp_path)
    for seed, (rows, channels) in enumerate(SIZES):
        for training in (True, False) if len(plan.variants) > 1 else (True,):
            torch.manual_seed(seed)
            module = build(module_class, plan, channels).to(torch.float32)
            variant = plan.variants[0 if training else -1]
            names = [plan.chain.source.name, *plan.chain.tail_inputs, variant.result_gradient]
            tensors = {each: torch.randn(rows, channels) for each in dict.fromkeys(names)}
            expected = tail_reference(plan, module, tensors, mode, training)
            count_batch(plan, module, training)
            tail = EmulatedTail(plan, variant, library, module)
            assert sum(agreement(tail, tensors, mode, each, seed, expected) for each in schedules_of(variant))


# Each row, as far as it goes; the last value is repeated.
SPECIAL = (
    (2.0, 1.0, 2.0, 0.0),
    (-math.inf,),
    (math.inf, 0.0, math.inf, -math.inf, -math.inf, 1.0),
    (0.0, -0.0, 0.0),
    (1.0, math.nan, 3.0, math.nan, -3.0),
    (math.nan,),
    (-1.0, -2.0, -2.0, -1.0),
)


@pytest.mark.filterwarnings("ignore:std")  # of one channel
@pytest.mark.parametrize("name", marked(EXTREMES))
def test_ties_and_what_is_no_number(name: str, emulation_cache: Path, tmp_path: Path) -> None:
    """PyTorch's results and gradients. Where no quotient or root is taken, no value is rounded."""
    rounding = 0 if name in ("largest_of_x", "smallest_of_x") else 1e-6
    cancelling = 1e-5 if name.startswith(("spread", "logsumexp")) else 0
    plan = write(name, EXTREMES[name].spec(name), tmp_path)
    mode = plan.modes[0]
    library = kernels_of(tmp_path / name, mode, emulation_cache, checked=False)
    module = fusegen.load(name, tmp_path)(8)
    (variant,) = plan.variants
    for seed, channels in enumerate((1, 2, 7, 33, 132, 1030, 5001)):
        torch.manual_seed(seed)
        rows = [torch.tensor([row[min(i, len(row) - 1)] for i in range(channels)]) for row in SPECIAL]
        x = torch.stack([*rows, *(torch.randint(-2, 3, (channels,)).float() for _ in range(2))])
        tensors = {"x": x, variant.result_gradient: torch.randint(-8, 9, x.shape) / 8}
        expected = tail_reference(plan, module, tensors, mode, True)
        tail = EmulatedTail(plan, variant, library, module)
        compared = 0
        for schedule in schedules_of(variant):
            try:
                found = tail.run(tensors, mode, shapes=forced_shapes(schedule), seed=seed).values
            except EmulationError as error:
                assert schedule == "on chip" and "CUDA error 9" in str(error)  # the row does not fit
                continue
            for key in found.keys() & expected.keys():
                exact = expected[key].reshape(x.shape)
                where = f"{key}, {channels} channels, {schedule}"
                torch.testing.assert_close(
                    found[key].double(),
                    exact,
                    rtol=rounding,
                    atol=cancelling,
                    equal_nan=True,
                    msg=lambda m, at=where: f"{at}: {m}",
                )
                compared += 1
        assert compared >= 4


def test_norms_of_values_without_channels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"layer_norm needs \[rows, channels\]"):
        write("norm", Other((SUM.replace("true", "false"), LN)).spec("norm"), tmp_path)
