"""Which factors may be multiplied with each other before a value is: those whose product stays a normal number.

(x - center) * a * c is as PyTorch computes it, from the left; (x - center) * (a * c) is not where a * c is infinite,
zero or subnormal, as 0 * inf is NaN. In float32, the narrowest type that kernels compute in, normal numbers are those
from 2^-126 to 2^128. Bounds are of exponents to the base of 2:

- A literal is known here.
- The constants of a module are known when it is called. Kernels run only if these together are within `CONSTANTS`
  (`folded_constants` says which ones count), else PyTorch's own operators do.
- 1 / deviation lies within `INVERSE_DEVIATION`, whatever the variance is: the root has half the exponents.
- A count is at least 1, and less than 2^40.
- Parameters are not known before the kernel runs, and do not count. PyTorch itself multiplies weight and 1 / deviation
  (ATen, group_norm_kernel.cu).

Values move too: a constant that leaves a sum or a product of values brings these nearer to the ends of the range, by no
more than the constants are: `is_moderate`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from fusegen.ir.graph import Node, ancestors

CONSTANTS = 40
INVERSE_DEVIATION = (-64.0, 75.0)
_COUNT = 40.0
_NORMAL = (-126.0, 127.0)


def is_moderate(factors: Iterable[Node]) -> bool:
    """Whether the literals among the factors are together within `CONSTANTS`."""
    exponents = [_exponent(factor) for factor in factors if factor.op == "literal"]
    return _within(exponents, (-CONSTANTS, CONSTANTS))


def is_in_range(factors: Iterable[Node]) -> bool:
    """Whether the product of all factors, or of some of them, is a normal number, parameters left aside."""
    factors = tuple(factors)
    constants = Counter(_constant(factor) for factor in factors)
    constants.pop(None, None)
    # Of the constants of a module all together are bounded; one that is there twice counts twice.
    times = max(constants.values(), default=0)
    high: float = CONSTANTS * times
    low = -high
    for factor in factors:
        least, most = _bounds(factor)
        low, high = low + min(least, 0), high + max(most, 0)
    return is_moderate(factors) and _NORMAL[0] <= low and high <= _NORMAL[1]


def folded_constants(coefficients: Iterable[Node]) -> set[str]:
    """The module's constants that are multiplied with others of these coefficients, which elements are scaled by."""
    found: set[str] = set()
    for node in ancestors(coefficients):
        if node.op == "mul" and not node.is_full:
            found |= {name for operand in node.operands for name in _constants_in(operand)}
    return found


def _constants_in(node: Node) -> set[str]:
    """The constants that a product has as factors."""
    if node.op in ("mul", "negate"):
        return {name for operand in node.operands for name in _constants_in(operand)}
    name = _constant(node)
    return set() if name is None else {name}


def _constant(node: Node) -> str | None:
    """The constant of the module that a factor is, or is the reciprocal of."""
    inner = node.operands[0] if node.op == "reciprocal" else node
    return str(inner.attribute) if inner.op == "scalar" else None


def _bounds(node: Node) -> tuple[float, float]:
    match node.op:
        case "literal":
            exponent = _exponent(node)
            return exponent, exponent
        case "rsqrt":
            return INVERSE_DEVIATION
        case "count":
            return 0.0, _COUNT
        case "reciprocal" if node.operands[0].op == "count":
            return -_COUNT, 0.0
    return 0.0, 0.0


def _exponent(literal: Node) -> float:
    return math.log2(abs(literal.number)) if literal.number else 0.0  # a product with zero is zero in any order


def _within(exponents: Iterable[float], limits: tuple[float, float]) -> bool:
    exponents = tuple(exponents)
    low, high = sum(min(e, 0.0) for e in exponents), sum(max(e, 0.0) for e in exponents)
    return limits[0] <= low and high <= limits[1]
