"""Chains of images: their values are [batch, channels, *positions] for PyTorch.

The kernels take [rows, channels]. In channels_last memory an image is that by a view: a row for
each position of each of the batch. PyTorch's result is in channels_last where the first input is,
or what a convolution makes of it; else it is contiguous. Most chains' kernels read and write
contiguous tensors themselves; other chains' inputs, results and gradients are copied.
"""

from typing import NamedTuple

from torch import Tensor

from .memory_formats import as_contiguous, is_last, with_channels_innermost
from .stand_in import Eager

OTHER_POSITIONS = Eager("the first input has other dimensions than the spec gives it")


class Pictured(NamedTuple):
    """Stands for the first argument of an operator: an input [batch, channels, *positions]."""

    x: Tensor


def has_no_variance(shape):
    """Whether PyTorch refuses the statistics of a tensor of this shape, or the shape itself."""
    return min(shape[2:]) < 1 or (shape[0] == 1 and max(shape[2:]) == 1)


def call_pictured(operator, arguments):
    """The operator's result where its first argument is an input of images."""
    x = arguments[0].x
    return call_on_images(operator, [x, *arguments[1:]], is_last(x))


def call_on_images(operator, given, stays_last):
    """The operator's result for arguments that are [batch, channels, *positions] where they have
    rows. stays_last: whether the result is to be in channels_last.
    """
    package = operator.package
    batch, channels, *positions = given[0].shape
    channels //= operator.parts
    if operator.tiled and not stays_last and channels > 1 and max(positions) > 1:
        for index in operator.with_rows:
            given[index] = given[index].flatten(2)
        if not operator.own_source:  # the convolution's result is in channels_last
            given[0] = given[0].mT
        return operator.run(given).view(batch, channels, *positions)
    for index in operator.with_rows:
        given[index] = with_channels_innermost(package, given[index])
    result = operator(*given)
    if operator.drops_channels:
        return result
    result = result.movedim(-1, 1)
    if stays_last:
        return result
    if not result.is_contiguous():
        return as_contiguous(package, result)
    # Sizes of 1 make both formats one, but the strides would make PyTorch go on in channels_last.
    return result.flatten(1).view(result.shape)
