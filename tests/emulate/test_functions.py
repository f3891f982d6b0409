"""Functions of one formula in float32 beside PyTorch in double, relative to each value in the tails, too."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from tests.emulate.functions import Functions, grid

SCALE, ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def of_input(function: str, constants: str = "", by_result: str = "") -> tuple[str, str]:
    """The calls of a function of x and of its gradient."""
    value = f"{function}{by_result if function == 'logsigmoid' else ''}(x{constants})"
    return value, f"{function}_backward{by_result}(A(1), x{constants})"


def of_output(function: str) -> tuple[str, str]:
    return f"{function}(x)", f"{function}_backward(A(1), {function}(x))"


def softsign(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's gradient is a difference that cancels, in double, too, where x is large."""
    far = x.sign() * (1 - 1 / (1 + x.abs()))
    return torch.where((x.abs() > 1) & x.isfinite(), far, F.softsign(x))


# The value and the gradient in C++, and the function in PyTorch.
CASES = [
    (*of_input("elu", ", A(1), A(0.5), A(1)", "<Out>"), lambda x: F.elu(x, 0.5)),
    (*of_input("elu", f", A({SCALE}), A({SCALE * ALPHA}), A(1)", "<Out>"), F.selu),
    (*of_input("elu", ", A(1), A(0.5), A(2)", "<Out>"), lambda x: F.celu(x, 0.5)),
    (*of_input("softsign"), softsign),
    (*of_input("logsigmoid", "", "<Out>"), F.logsigmoid),
    (*of_input("hardsigmoid"), lambda x: F.relu6(x + 3) / 6),  # F's gradient has 1/6 to a float's digits
    (*of_input("hardtanh", ", A(0), A(6)"), F.relu6),
    ("fabs(x)", "absolute_backward(A(1), x)", torch.abs),
    (*of_input("leaky_relu", ", A(0.25)"), lambda x: F.prelu(x, torch.tensor([0.25], dtype=x.dtype))),
    ("sqrt(x)", "A(1) / (A(2) * sqrt(x))", torch.sqrt),
    (*of_output("rsqrt"), torch.rsqrt),
    ("log(x)", "A(1) / x", torch.log),
    (*of_output("reciprocal"), torch.reciprocal),
    *(
        (*of_input("real_power", f", A({e}), A({e - 1!r})"), lambda x, e=e: torch.pow(x, e))
        for e in (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 1.1, -1.5)
    ),
]
ROUNDING = {"floor": "floor", "ceil": "ceil", "round": "rint", "trunc": "trunc", "sign": "sign"}


def tanhshrink(x: torch.Tensor) -> torch.Tensor:
    """By its series where x - tanh(x) would cancel in double."""
    near = x.clamp(-0.01, 0.01)
    series = sum(c * near ** (2 * i + 3) for i, c in enumerate((1 / 3, -2 / 15, 17 / 315, -62 / 2835, 1382 / 155925)))
    return torch.where(x.abs() < 0.01, series, x - x.tanh())


def expm1(x: torch.Tensor) -> torch.Tensor:
    """PyTorch's gradient is the result and 1, which is 0 in double, too, where exp(x) is not."""
    return torch.where(x < -1, x.clamp(max=-1).exp() - 1, torch.expm1(x))


CASES += [
    (*of_input("threshold", ", A(3), A(-1)"), lambda x: F.threshold(x, 3, -1)),
    (*of_input("hardshrink", ", A(3)"), lambda x: F.hardshrink(x, 3)),
    (*of_input("softshrink", ", A(3)"), lambda x: F.softshrink(x, 3)),
    ("tanhshrink(x, tanh(x))", "square(tanh(x))", tanhshrink),
    ("sin(x)", "cos(x)", torch.sin),
    ("cos(x)", "-sin(x)", torch.cos),
    (*of_output("tan"), torch.tan),
    (*of_input("asin"), torch.asin),
    ("acos(x)", "-asin_backward(A(1), x)", torch.acos),
    (*of_input("atan"), torch.atan),
    ("sinh(x)", "cosh(x)", torch.sinh),
    ("cosh(x)", "sinh(x)", torch.cosh),
    (*of_input("asinh"), torch.asinh),
    (*of_input("acosh"), torch.acosh),
    (*of_input("atanh"), torch.atanh),
    ("erf(x)", "erf_backward<Out>(A(1), x)", torch.erf),
    ("erfc(x)", "-erf_backward<Out>(A(1), x)", torch.erfc),
    ("exp2(x)", f"exp2(x) * A({math.log(2)})", torch.exp2),
    ("expm1(x)", "exponential<Out>(x)", expm1),
    ("log2(x)", f"A({1 / math.log(2)}) / x", torch.log2),
    ("log10(x)", f"A({1 / math.log(10)}) / x", torch.log10),
    ("log1p(x)", "A(1) / (x + A(1))", torch.log1p),
    (
        "logaddexp<Out>(x, A(3))",
        "logaddexp_backward<Out>(A(1), x, A(3))",
        lambda x: torch.logaddexp(x, x.new_tensor(3)),
    ),
    ("logaddexp<Out>(x, x)", "A(2) * logaddexp_backward<Out>(A(1), x, x)", lambda x: torch.logaddexp(x, x)),
    ("hypot(x, A(3))", "x / hypot(x, A(3))", lambda x: torch.hypot(x, x.new_tensor(3))),
    (*of_input("atan2", ", A(3)"), lambda x: torch.atan2(x, x.new_tensor(3))),
    ("atan2(A(3), x)", "-atan2_backward(A(1), x, A(3))", lambda x: torch.atan2(x.new_tensor(3), x)),
    (*of_input("atan2", ", A(0)"), lambda x: torch.atan2(x, x.new_tensor(0))),
    *((f"{function}(x)", "no_gradient(x)", getattr(torch, op)) for op, function in ROUNDING.items()),
]
NAMES = [value for value, _, _ in CASES] + [gradient for _, gradient, _ in CASES]
SPECIAL = torch.tensor([0.0, -0.0, 1e-40, -1e-40, -3.0, 3.0, 6.0, -1.0, math.inf, -math.inf, math.nan])
ULP = 2.0**-23


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory, emulation_cache):
    return Functions(NAMES, tmp_path_factory.mktemp("functions"), emulation_cache)


def eager(x: torch.Tensor) -> torch.Tensor:
    """Values, then gradients, in the dtype of x."""
    found = []
    for _, _, function in CASES:
        leaf = x.clone().requires_grad_()
        value = function(leaf)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
        found.append((value.detach(), slope))
    return torch.stack([*(value for value, _ in found), *(slope for _, slope in found)])


def test_float32_is_exact_to_some_ulps_of_each_value(evaluate) -> None:
    """Where the value is a normal float and eager can tell it. Kinks are among the points."""
    edge = 1 + torch.arange(-50, 51) / 2**24  # of asin and the like; sines of large numbers
    x = torch.cat([grid(87.0, edge, -edge, torch.logspace(2, 37, 500)), torch.tensor([-3.0, 3.0, 6.0, 0.0])])
    found, exact = evaluate("float32", x).double(), eager(x.double())
    plain = eager(x).double()
    normal = (exact.abs() > 1.2e-38) & (exact.abs() < 3.4e38) & plain.isfinite()
    error, theirs = (((each - exact).abs() / exact.abs())[normal] for each in (found, plain))
    excess = error - (2 * theirs).clamp(min=4 * ULP)
    index = normal.nonzero()[excess.argmax()]
    assert excess.max() <= 0, (NAMES[index[0]], x[index[1]], error[excess.argmax()] / ULP)
    assert (found[exact == 0] == 0).all()


def test_slopes_of_inverse_functions_where_eager_has_no_digits(evaluate) -> None:
    """Near the ends of their domain, and where the square of x leaves the range."""
    x = torch.cat([1 - torch.arange(1, 50) / 2**24, 1 + torch.arange(1, 50) / 2**23, torch.logspace(3, 37, 200)])
    found, exact = evaluate("float32", x).double(), eager(x.double())
    for name in ("asin", "asinh", "acosh", "atanh"):
        row = next(index for index, each in enumerate(NAMES) if each.startswith(f"{name}_backward"))
        known = exact[row].isfinite() & (exact[row].abs() > 1.2e-38)
        error = ((found[row] - exact[row]).abs() / exact[row].abs())[known]
        assert known.sum() >= 49 and error.max() <= 4 * ULP, (name, error.max() / ULP)


@pytest.mark.parametrize("out", ["float16", "float32", "float64"])
def test_special_values_are_those_of_eager(evaluate, out: str) -> None:
    """At the edges of a function's domain, at kinks, and for what is no number."""
    found, exact = evaluate(out, SPECIAL), eager(SPECIAL.double())
    most = torch.finfo(torch.float64 if out == "float64" else torch.float32).max
    for row, name in enumerate(NAMES):
        for x, mine, theirs in zip(SPECIAL.tolist(), found[row].tolist(), exact[row].tolist(), strict=True):
            assert math.isnan(mine) == math.isnan(theirs), (name, x, mine, theirs)
            if abs(theirs) > most:
                assert mine == math.copysign(math.inf, theirs), (name, x, mine, theirs)
            elif not math.isnan(theirs):
                assert math.isfinite(mine), (name, x, mine, theirs)
