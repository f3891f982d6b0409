"""Shapes of results and operands that are not [rows, channels].

Several trailing dimensions as one: the channels of a norm over [positions, features].

The kernels take [..., channels]. An input is that by a view, if it is contiguous. What varies over
some of the trailing dimensions alone is repeated, and autograd sums its gradient.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .precisions import call_operator


class Flattened(NamedTuple):
    """Stands for the first argument of an operator: an input, whose dimensions the result has.

    trailing: the last sizes, which are the channels together.
    """

    x: Tensor
    trailing: tuple[int, ...]

    def detach(self):
        return Flattened(self.x.detach(), self.trailing)

    def flatten(self):
        return self.x.flatten(-len(self.trailing))

    def call(self, module, operator, arguments, last):
        """As FusedModule._fusegen_run_part() calls it."""
        result = call_operator(module, operator, (self.flatten(), *arguments[1:]))
        return with_trailing(result, self.trailing)


def widened(values):
    """In float32, or in float64 where it is that."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def with_trailing(result, trailing):
    """The result of an operator, or each of several, with these dimensions in place of channels."""
    if isinstance(result, tuple):
        return tuple(with_trailing(each, trailing) for each in result)
    return result.view(*result.shape[:-1], *trailing)


def flat_parameter(values, trailing):
    """A tensor that broadcasts to the trailing dimensions, with a value for each channel."""
    count = len(trailing)
    own = values.reshape(values.shape[-count:]) if values.dim() > count else values
    return own.expand(trailing).flatten()


def transposed(result, form):
    """[rows, channels] in the dimensions of `form`: "rows", "channels" and ones. It is contiguous,
    as PyTorch's sum of [rows, 1] and [channels, 1, 1] is."""
    sizes = dict(zip(("rows", "channels"), result.shape, strict=True))
    return result.t().contiguous().view([sizes.get(each, each) for each in form])
