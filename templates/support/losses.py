"""What is made of the losses of rows, which a chain's kernels leave."""

import functools
from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from .op_schemas import describe
from .stand_in import tensor

_MOST_ROWS = 1 << 15  # that the one block of the kernel is fast with


class Loss(NamedTuple):
    """Their mean or sum.

    reduction: "mean" or "sum". target: which of the module's inputs has the numbers of the wanted
    channels. ignored: the number of rows without a loss, which has left 0 there. weight: which of
    the inputs has a weight of each channel, or the module's buffer, None for 1: a mean is divided
    by those of the targets.
    """

    reduction: str
    target: int
    ignored: int
    chunk: int | None = None  # see losses_in_chunks.py
    weight: int | str | None = None

    def is_divided(self, module, arguments):
        """Whether a call makes the losses some rows at a time."""
        return False

    def of_results(self, module, package, results, place, inputs):
        """What a call returns, a tuple where that is several. place: of the losses among these."""
        if not isinstance(results, tuple):
            return self.reduced(module, package, results, inputs)
        made = self.reduced(module, package, results[place], inputs)
        return (*results[:place], made, *results[place + 1 :])

    def reduced(self, module, package, losses, inputs):
        """A tensor without dimensions, of the losses' dtype."""
        return self.reduce(package, losses, inputs[self.target], self.weights(module, inputs))

    def weights(self, module, inputs):
        """Of the channels, in a dtype to add them up in; None for 1."""
        if self.weight is None:
            return None
        is_held = isinstance(self.weight, str)
        given = (tensor(module, self.weight) if is_held else inputs[self.weight]).detach()
        return given.to(torch.promote_types(given.dtype, torch.float32))

    def reduce(self, package, losses, target, weights):
        """The same, by its target and the weights of channels.

        Added in float32, in an order that the number of rows fixes. The rows that count are counted
        on the device: NaN if there are none, as PyTorch has it. A kernel of the package takes the
        mean of not too many rows. torch.compile fuses PyTorch's operators itself.
        """
        # A number of rows that stays free in a trace must not be compared.
        has_kernel = self.reduction == "mean" and not torch.compiler.is_compiling()
        if has_kernel and losses.numel() <= _MOST_ROWS:
            if package.mode_of("output", losses.dtype) is not None:
                return _mean(package, losses.flatten(), target.flatten(), weights, self.ignored)
        is_double = losses.dtype == torch.float64
        total = losses.sum(dtype=torch.float64 if is_double else torch.float32)
        if self.reduction == "mean":
            total = total / self.count(target, weights)
        return total.to(losses.dtype)

    def count(self, target, weights):
        """How many rows count, or what the weights of their targets are together."""
        counts = target != self.ignored
        if weights is None:
            return counts.sum()
        # Where the target is no channel, the loss is no number.
        of_rows = weights[target.clamp(0, weights.shape[0] - 1)]
        return torch.where(counts, of_rows, 0).sum()


def _mean(package, losses, targets, weights, ignored):
    if torch.is_grad_enabled() and losses.requires_grad:
        return _Mean.apply(losses, targets, weights, package, ignored)
    return _reduced(package, losses, targets, weights, ignored)[0]


def _reduced(package, losses, targets, weights, ignored):
    mode = package.mode_of("output", losses.dtype)
    return _op(package)(losses, targets, weights, ignored, mode)


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, losses, targets, weights, package, ignored):
        mean, count = _reduced(package, losses, targets, weights, ignored)
        ctx.save_for_backward(count)
        ctx.rows = losses.shape
        return mean

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        """The kernels leave the gradient of rows that do not count out of theirs."""
        (count,) = ctx.saved_tensors
        found = grad.new_empty(ctx.rows)
        # With `out` one kernel does all of it, which rounds once.
        torch.div(grad.expand(ctx.rows), count.expand(ctx.rows), out=found)
        return found, None, None, None, None


@functools.cache
def _op(package):
    op = package.find_op("mean_loss")

    def fake(losses, targets, weights, ignored, dtype_mode):
        accumulator = torch.promote_types(losses.dtype, torch.float32)
        return losses.new_empty(()), losses.new_empty((), dtype=accumulator)

    describe(op, fake, lambda *_, **__: 0)
    return op
