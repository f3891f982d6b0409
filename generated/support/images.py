"""Chains of images: their values are [batch, channels, *positions] for PyTorch.

The kernels take [rows, channels]. In channels_last memory an image is that by a view: a row for
each position of each of the batch. PyTorch's result is in channels_last where the first input is,
or what a convolution makes of it; else it is contiguous. Most chains' kernels read and write
contiguous tensors themselves; other chains' inputs, results and gradients are copied.
"""

import math
from typing import NamedTuple

from torch import Tensor

from .memory_formats import as_contiguous, is_last, is_only_last, with_channels_innermost
from .precisions import call_operator
from .stand_in import Eager

OTHER_POSITIONS = Eager("the first input has other dimensions than the spec gives it")


class Pictured(NamedTuple):
    """Stands for the first argument of an operator: an input [batch, channels, *positions]."""

    x: Tensor

    @property
    def shape(self):
        return self.x.shape

    def call(self, module, operator, arguments, last):
        """As FusedModule._fusegen_run_part() calls it."""
        stays_last = is_last(self.x) if last is None else last
        return call_on_images(operator, [self.x, *arguments[1:]], stays_last)


class Multiplicand(NamedTuple):
    """The same: an operand of a product [batch, *positions, channels], a view of images."""

    x: Tensor

    @property
    def shape(self):
        return self.x.movedim(-1, 1).shape

    def call(self, module, operator, arguments, last):
        """As FusedModule._fusegen_run_part() calls it. Of F.linear comes channels_last, too."""
        given = [self.x, *arguments[1:]]
        for index in operator.with_rows[1:]:
            given[index] = with_channels_innermost(operator.package, given[index])
        result = call_operator(module, operator, tuple(given))
        return _with_channels(operator, result, lambda each: each.movedim(-1, 1))


def has_no_variance(shape):
    """Whether PyTorch refuses the statistics of a tensor of this shape, or the shape itself."""
    return min(shape[2:]) < 1 or (shape[0] == 1 and max(shape[2:]) == 1)


def row_count(shape):
    """How many rows images of this shape have."""
    return math.prod((shape[0], *shape[2:]))


def has_one_position(shape):
    """Whether PyTorch refuses the statistics of each image of this shape, or the shape itself."""
    return min(shape[2:]) < 1 or max(shape[2:]) == 1


def call_on_images(operator, given, stays_last):
    """The operator's result for arguments that are [batch, channels, *positions] where they have
    rows. stays_last: whether the result is to be in channels_last.
    """
    package = operator.package
    batch, channels, *positions = given[0].shape
    channels //= operator.parts
    further = operator.with_rows[0 if operator.own_source else 1 :]
    kept = operator.has_contiguous_layout and not stays_last and channels > 1 and max(positions) > 1
    if kept and not any(is_only_last(given[index]) for index in further):
        for index in operator.with_rows:
            given[index] = given[index].flatten(2)
        if not operator.own_source:  # the convolution's result is in channels_last
            given[0] = given[0].mT
        if operator.positions_at is not None:
            given[operator.positions_at] = math.prod(positions)
        result = operator.run(given)
        return operator.each_full(result, lambda each: each.view(batch, channels, *positions))
    for index in operator.with_rows:
        # An input's gradient has the format of the result, or that of the input in channels_last.
        grad_last = stays_last or index not in further or is_only_last(given[index])
        given[index] = with_channels_innermost(package, given[index], grad_last)
    result = operator(*given)
    return _with_channels(
        operator, result, lambda each: _in_format(package, each.movedim(-1, 1), stays_last)
    )


def _with_channels(operator, result, change):
    """What an operator returned, with the results changed that have a dimension of channels."""
    if operator.of_samples is not None:
        return operator.each_full(result, change)
    if not isinstance(result, tuple):
        return change(result) if operator.dropped is None else result
    return tuple(
        each if index == operator.dropped else change(each) for index, each in enumerate(result)
    )


def _in_format(package, x, stays_last):
    """A result of kernels, which is in channels_last."""
    return x if stays_last else as_contiguous(package, x)
