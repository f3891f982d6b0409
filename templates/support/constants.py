"""When kernels may take a module's constants: numbers that PyTorch accepts and that can be folded.
And how many channels they may take.

Constants are attributes, which may have changed since the module was made.
"""

import math

import torch

from .stand_in import REFUSED, Eager

# Kernels multiply constants with each other and with 1 / deviation: this keeps the products in the
# range of normal numbers.
_FOLDED = 2.0**40
FAR_FROM_ONE = Eager("constants that the kernels would multiply are too large or too small")
# Kernels keep the number of a channel in float32, which has all integers up to this.
_COUNTED = 2**24
UNCOUNTED = Eager(f"the kernels number up to {_COUNTED} channels")


def not_numbers(*values):
    """The first constant that is no number of Python's, such as a tensor or None."""
    for value in values:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return Eager(f"a constant is a {type(value).__name__}, not a number")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return REFUSED  # PyTorch takes no larger ones
    return None


def refused(condition):
    """PyTorch raises an error where a condition of its own holds: so it is to be called."""
    return REFUSED if condition else None


def beyond(dtype, *values):
    """PyTorch raises an error for a finite constant that the tensor's dtype has no number for."""
    most = torch.finfo(dtype).max
    for value in values:
        if abs(value) > most and not math.isinf(value):
            return REFUSED
    return None


def far_from_one(factors, divisors):
    """Constants of which products with others may leave the range of numbers."""
    size = 1.0
    for value in divisors:
        if value == 0:
            return FAR_FROM_ONE
    for value in (*factors, *divisors):
        if value != 0:
            size *= max(abs(value), 1.0 / abs(value))
    return None if size <= _FOLDED else FAR_FROM_ONE  # not for NaN either


def uncounted(channels):
    """More channels than the kernels have numbers for."""
    return UNCOUNTED if channels > _COUNTED else None
