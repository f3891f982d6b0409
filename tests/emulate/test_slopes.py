"""mish, its slope and that of silu, for results of each type, against double precision: in the tails, too."""

import math

import pytest
import torch

from tests.emulate.functions import Functions, grid

ULP = {"float16": 2.0**-23, "float32": 2.0**-23, "float64": 2.0**-52}
# exp(-x) is a normal float up to 87.
MOST = 80.0
NEAR = torch.linspace(19.9, 20.1, 201)  # the bound of mish's exponential


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory, emulation_cache):
    power = "bounded_exp<Out>(x)"
    expressions = (f"mish<Out>(x, {power})", f"mish_slope<Out>(x, {power})", "silu_slope(x, sigmoid<Out>(x))")
    return Functions(expressions, tmp_path_factory.mktemp("slopes"), emulation_cache)


def exactly(x):
    """The same in double precision, from other formulas."""
    x = x.double()
    soft = torch.log1p(torch.exp(-x.abs())) + x.clamp_min(0)
    s, rest = torch.sigmoid(x), torch.sigmoid(-x)
    cosh = torch.cosh(soft.clamp_max(300))
    return torch.stack([x * torch.tanh(soft), torch.tanh(soft) + x * s / cosh**2, s + x * s * rest])


@pytest.mark.parametrize("out", list(ULP))
def test_values_and_slopes(evaluate, out):
    """To some ulps, slopes to some of 1, and in the left tail of their own; silu's has x times its sigmoid's error."""
    x = grid(MOST, NEAR)
    found, exact = evaluate(out, x), exactly(x)
    error, ulps = (found - exact).abs(), 8 * ULP[out]
    assert (error[0] <= ulps * exact[0].abs()).all()
    assert (error[1] <= ulps).all() and (error[2] <= ulps + x.double().abs() * ULP[out]).all()
    tail = x < -3
    assert (error <= ulps * exact.abs())[:, tail].all()


@pytest.mark.parametrize("out", list(ULP))
def test_far_away(evaluate, out):
    """The slope does not grow with x where the exponential no longer does."""
    x = torch.tensor([100.0, 1e4, 1e18, 3e38])
    assert ((evaluate(out, x)[1:] - 1).abs() <= 2 * ULP[out]).all()
    assert (evaluate(out, -x)[1:].abs() <= 1e-40).all()


@pytest.mark.parametrize("out", list(ULP))
def test_infinite_and_unknown_values(evaluate, out):
    """As PyTorch on a GPU: mish(-inf) is NaN, from 0 times infinity, and slopes are NaN."""
    x = torch.tensor([math.inf, -math.inf, math.nan])
    value, *slopes = evaluate(out, x)
    assert value[0] == math.inf and value[1:].isnan().all()
    assert torch.stack(slopes).isnan().all()
