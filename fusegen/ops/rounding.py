"""Rounding and the sign, by the names that torch has for them. Their gradient is zero everywhere."""

from __future__ import annotations

from typing import Literal

from fusegen.ops.powers import Unary


class Floor(Unary):
    """The gradient is zero."""

    op: Literal["floor"]
    formula = "the largest whole number up to x"


class Ceil(Unary):
    """The gradient is zero."""

    op: Literal["ceil"]
    formula = "the smallest whole number from x on"


class Round(Unary):
    """The gradient is zero."""

    op: Literal["round"]
    formula = "the nearest whole number; of two, the even one"


class Trunc(Unary):
    """The gradient is zero."""

    op: Literal["trunc"]
    formula = "x without its fraction"


class Sign(Unary):
    """The gradient is zero."""

    op: Literal["sign"]
    formula = "1 above 0, -1 below, 0 at 0"
    kinks = (0,)


STEPS = (Floor, Ceil, Round, Trunc, Sign)
