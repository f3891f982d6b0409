"""Pooling by kernels: what these are told of the windows of a layer.

An op takes the numbers of `struct Windows` of call.h as a list: for each of three dimensions the
positions in front of the windows, those behind, and the options, then two numbers of a mean.
"""

import math

from .stand_in import Eager

_DIMENSIONS = 3
_MOST_TAPS = 256  # a byte says which of them was the largest
_MOST = 2**31 - 1
_MOST_ROWS = 2**31 - 2**24  # behind which a thread may step

OTHER_WINDOWS = Eager("the pooling has windows that kernels do not count, or that PyTorch refuses")


def windows_of(layer, shape):
    """The list for a layer and the shape in front of it, [batch, channels, *positions]; None where
    kernels do not know such windows."""
    batch, _, *given = shape
    stride = layer.kernel_size if layer.stride is None else layer.stride
    options = [
        each if isinstance(each, (tuple, list)) else (each,) * len(given)
        for each in (layer.kernel_size, stride, layer.padding, getattr(layer, "dilation", 1))
    ]
    if any(len(each) != len(given) for each in options) or getattr(layer, "return_indices", False):
        return None
    if not all(type(number) is int for each in options for number in each):
        return None
    is_mean = hasattr(layer, "count_include_pad")
    divisor = getattr(layer, "divisor_override", None)
    if divisor is not None and not 0 < abs(divisor) <= _MOST:
        return None
    made, rows = [], batch
    for size, kernel, stride, padding, dilation in zip(given, *options, strict=True):
        reach = dilation * (kernel - 1) + 1
        if min(size, kernel, stride, dilation) < 1 or not 0 <= padding <= kernel // 2:
            return None
        if is_mean and len(given) == 3 and size < kernel:  # PyTorch's alone refuses it
            return None
        made.append(_windows(size + 2 * padding - reach, size + padding, stride, layer.ceil_mode))
        rows *= max(size, made[-1])
    if min(made) < 1 or rows > _MOST_ROWS or math.prod(options[0]) > _MOST_TAPS:
        return None
    more = _DIMENSIONS - len(given)
    found = [*(1,) * more, *given, *(1,) * more, *made]
    for nothing, each in zip((1, 1, 0, 1), options, strict=True):
        found += [*(nothing,) * more, *each]
    return [*found, int(getattr(layer, "count_include_pad", True)), divisor or 0]


def _windows(last, end, stride, ceil_mode):
    """How many windows there are of which the last begins `last` behind the first. With ceil_mode
    one may reach beyond, if it begins in front of `end`, counted from the first."""
    if not ceil_mode:
        return last // stride + 1
    count = (last + stride - 1) // stride + 1
    return count - 1 if (count - 1) * stride >= end else count
