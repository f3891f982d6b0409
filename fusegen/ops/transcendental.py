"""Trigonometric and hyperbolic functions and the error function, by the names that torch has for them."""

from __future__ import annotations

import math
from typing import Literal

from fusegen.ops.powers import Unary


class Sin(Unary):
    op: Literal["sin"]
    formula = "sin(x), in radians"


class Cos(Unary):
    op: Literal["cos"]
    formula = "cos(x), in radians"


class Tan(Unary):
    op: Literal["tan"]
    formula = "tan(x), in radians"
    kinks = (math.pi / 2,)
    period = math.pi
    autocast = "float32"


class Asin(Unary):
    """NaN beyond -1 and 1, where the gradient is infinite."""

    op: Literal["asin"]
    formula = "the angle from -pi/2 to pi/2 whose sine is x"
    kinks = (-1, 1)
    autocast = "float32"


class Acos(Unary):
    """NaN beyond -1 and 1, where the gradient is infinite."""

    op: Literal["acos"]
    formula = "the angle from 0 to pi whose cosine is x"
    kinks = (-1, 1)
    autocast = "float32"


class Atan(Unary):
    op: Literal["atan"]
    formula = "the angle from -pi/2 to pi/2 whose tangent is x"


class Sinh(Unary):
    op: Literal["sinh"]
    formula = "(exp(x) - exp(-x)) / 2"
    autocast = "float32"


class Cosh(Unary):
    op: Literal["cosh"]
    formula = "(exp(x) + exp(-x)) / 2"
    autocast = "float32"


class Asinh(Unary):
    op: Literal["asinh"]
    formula = "log(x + sqrt(x^2 + 1))"


class Acosh(Unary):
    """NaN below 1, where the gradient is infinite."""

    op: Literal["acosh"]
    formula = "log(x + sqrt(x^2 - 1))"
    kinks = (-1, 1)


class Atanh(Unary):
    """Infinite at -1 and 1, NaN beyond."""

    op: Literal["atanh"]
    formula = "log((1 + x) / (1 - x)) / 2"
    kinks = (-1, 1)


class Erf(Unary):
    op: Literal["erf"]
    formula = "2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x"


class Erfc(Unary):
    """To its own digits where x is large, too."""

    op: Literal["erfc"]
    formula = "1 - erf(x)"


STEPS = (Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Erf, Erfc)
