"""What gelu is made of, for results of each type, against double precision: in the left tail, too."""

import math

import pytest
import torch

from tests.emulate.functions import Functions, grid

# exp(-x^2 / 2) is a normal float up to here.
MOST = 13.2
# The relative errors of the polynomials, and some of their evaluation: float16 has no use for more of the tail.
FITTED = {"bfloat16": (5e-6, MOST), "float16": (3e-6, 4.0)}
ULP = 2.0**-23


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory, emulation_cache):
    """Phi, the slope of gelu, gelu with a tanh and its slope."""
    slope = "gelu_slope<Out>(x, normal_cdf<Out>(x))"
    expressions = ("normal_cdf<Out>(x)", slope, "gelu_tanh<Out>(x)", "gelu_tanh_backward<Out>(A(1), x)")
    return Functions(expressions, tmp_path_factory.mktemp("gelu"), emulation_cache)


def exactly(x):
    """The same in double precision, without cancellation."""
    x = x.double()
    cdf = 0.5 * torch.special.erfc(-x / math.sqrt(2))
    slope = cdf + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    inner = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    s = torch.sigmoid(inner)
    inner_slope = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return torch.stack([cdf, slope, x * s, s + x * s * torch.sigmoid(-inner) * inner_slope])


@pytest.mark.parametrize("out", FITTED)
def test_phi_for_16_bits_is_exact_in_both_tails(evaluate, out):
    """Relative, far below what 16 bits show, but for the rounding of x^2 in the exponential."""
    fitted, most = FITTED[out]
    x = grid(most)
    cdf, exact = evaluate(out, x)[0], exactly(x)[0]
    error = (cdf / exact - 1).abs()
    bound = fitted + (x.double() ** 2 + 8) * ULP
    assert (error <= bound).all(), (x[(error - bound).argmax()], (error - bound).max())
    assert (cdf[x == 0.0] - 0.5).abs().max() <= fitted and cdf.max() <= 1


def test_phi_for_float16_is_exact_where_the_slope_vanishes_and_where_results_do(evaluate):
    """About the slope's root, and to a fraction of the smallest float16 behind the tail that was fitted."""
    near, far = torch.linspace(-1, -0.5, 10_001), -torch.linspace(4, 60, 10_001)
    slope, exact = evaluate("float16", near)[1], exactly(near)[1]
    assert (slope - exact).abs().max() < 1e-7
    found, exact = evaluate("float16", far)[:2], exactly(far)[:2]
    assert ((found - exact) * far).abs().max() < 2.0**-24 / 50


@pytest.mark.parametrize(
    "out, relative", [*((out, FITTED[out][0]) for out in FITTED), ("float32", 0.0), ("float64", None)]
)
def test_slopes_and_the_tanh_form(evaluate, out, relative):
    """To some ulps of the largest term; gelu with a tanh to its own in the left tail, where that is a normal float."""
    x = grid(FITTED[out][1] if out in FITTED else 5.0)
    found, exact = evaluate(out, x), exactly(x)
    if relative is None:
        assert torch.allclose(found, exactly(x.double()), rtol=1e-13, atol=1e-15)
        return
    assert ((found - exact).abs() <= (relative + 8 * ULP) * exact.abs().clamp_min(1)).all()
    size = exact[2].abs()
    tail = (x.abs() <= 5) & (size > 1e-37)
    assert ((found[2] - exact[2]).abs() <= 40 * ULP * size)[tail].all()


@pytest.mark.parametrize("out", ["bfloat16", "float16", "float32", "float64"])
def test_infinite_and_unknown_values(evaluate, out):
    """As PyTorch on a GPU: gelu(-inf) is NaN, from 0 times infinity, gelu(inf) infinite, and slopes are NaN."""
    x = torch.tensor([math.inf, -math.inf, math.nan])
    cdf, slope, tanh, tanh_slope = evaluate(out, x)
    assert cdf[0] == 1 and cdf[1] == 0 and cdf[2].isnan()
    assert tanh[0] == math.inf and tanh[1:].isnan().all()
    assert slope.isnan().all() and tanh_slope.isnan().all()
