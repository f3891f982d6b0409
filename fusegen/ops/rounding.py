"""Rounding and the sign, by the names that torch has for them. Their gradient is zero everywhere."""

from __future__ import annotations

from typing import Literal

from fusegen.ops.powers import Unary


class Constant(Unary):
    """A function that is constant between its jumps."""

    jumps = True


class Floor(Constant):
    """The gradient is zero."""

    op: Literal["floor"]
    formula = "the largest whole number up to x"
    kinks = (0,)
    period = 1.0


class Ceil(Constant):
    """The gradient is zero."""

    op: Literal["ceil"]
    formula = "the smallest whole number from x on"
    kinks = (0,)
    period = 1.0


class Round(Constant):
    """The gradient is zero."""

    op: Literal["round"]
    formula = "the nearest whole number; of two, the even one"
    kinks = (0.5,)
    period = 1.0


class Trunc(Constant):
    """The gradient is zero."""

    op: Literal["trunc"]
    formula = "x without its fraction"
    kinks = (0,)
    period = 1.0


class Sign(Constant):
    """The gradient is zero."""

    op: Literal["sign"]
    formula = "1 above 0, -1 below, 0 at 0"
    kinks = (0,)


STEPS = (Floor, Ceil, Round, Trunc, Sign)
