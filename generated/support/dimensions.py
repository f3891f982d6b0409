"""Inputs with other dimensions than [rows, channels].

The kernels take [rows, channels]. An input [..., channels] is that by a view, if it is contiguous:
a row for each combination of the leading dimensions. A chain allows it where PyTorch's operators
do the same as on the view.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Dimensions(NamedTuple):
    """How many dimensions the inputs may have. most: None for any number. reason: of the bounds.

    own: of inputs with as many dimensions as the spec says, whatever the others have, by index.
    positions: how many dimensions of images with a batch are behind the channels.
    """

    least: int
    most: int | None = None
    reason: str = ""
    own: dict[int, int] | None = None
    positions: int = 0

    def form(self):
        """The inputs' shape in words."""
        if self.most is not None and self.most > self.least:  # in front of a convolution
            alone = ("channels", *("depth", "height", "width")[2 - self.most :])
            return f"[batch, {', '.join(alone)}], or without the batch"
        if self.positions:
            return f"[batch, channels{', *' * self.positions}]"
        if self.most == 2:
            return "[rows, channels]"
        if self.most is not None:
            return f"[{', '.join(['*'] * (self.most - 1))}, channels]"
        return "[..., channels]" if self.least == 1 else "[..., rows, channels]"


def check_own_dimensions(name, allowed, x, index, first):
    """Raises ValueError where an input with dimensions of its own has another number of them. Where
    the first input lacks its batch, so may others.

    name: of the package. allowed: the Dimensions of its inputs. first: the first input.
    """
    expected, (least, most, *_) = allowed.own[index], allowed
    has_batch = most is None or least == most or first.dim() == most
    if x.dim() != expected and (has_batch or x.dim() != expected - 1):
        came = list(x.shape)
        dimensions = "one dimension" if expected == 1 else f"{expected} dimensions"
        raise ValueError(f"{name}: input {index + 1} must have {dimensions}, got {came}")


def check_inputs(name, allowed, inputs):
    """Raises ValueError for inputs with dimensions that a chain does not take, and TypeError for
    what is no tensor. name, allowed: as above."""
    for index, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}: expected tensors as inputs, got {type(x).__name__}")
        if allowed.own and index in allowed.own:
            check_own_dimensions(name, allowed, x, index, inputs[0])
        else:
            check_dimensions(name, allowed, x, inputs[0])


def spread(x, shape):
    """An input with a value for each combination of the dimensions that are rows: it has those of
    `shape`, and its own channels. A view, which is copied where rows have to be a dimension.
    """
    return x.expand(torch.broadcast_shapes(x.shape, shape))


def check_dimensions(name, allowed, x, first):
    """Raises ValueError where a module takes no input with the dimensions of `x`.

    name, allowed: as above. first: the module's first input, which says how many dimensions all
    have.
    """
    count, came = x.dim(), list(x.shape)
    if count < allowed.least or (allowed.most is not None and count > allowed.most):
        reason = f": {allowed.reason}" if allowed.reason else ""
        raise ValueError(f"{name}: inputs must be {allowed.form()}, got {came}{reason}")
    if count != first.dim():
        raise ValueError(
            f"{name}: inputs must have as many dimensions each, got {list(first.shape)} and {came}"
        )


def other_shape_of(package, name, x, expected):
    """A ValueError: an input has another shape than it must have. expected: sizes, as text."""
    return ValueError(f"{package.name}: {name} must be [{expected}], got {list(x.shape)}")


def as_rows(x):
    """[..., channels] as [rows, channels]: a view, or a copy where the strides allow none."""
    return x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0)


def pooled(shape, windows):
    """The sizes behind windows of [batch, *positions]. windows: the list of windows_of()."""
    return (shape[0], *windows[7 - len(shape) : 6])


def pooled_counts(windows):
    """How many positions an image has in front of its windows, and behind."""
    return math.prod(windows[:3]), math.prod(windows[3:6])
