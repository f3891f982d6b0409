"""What is made of the losses of rows, which a chain's kernels leave."""

from typing import NamedTuple

import torch


class Loss(NamedTuple):
    """Their mean or sum.

    reduction: "mean" or "sum". target: which of the module's inputs has the numbers of the wanted
    channels. ignored: the number of rows without a loss, which has left 0 there.
    """

    reduction: str
    target: int
    ignored: int

    def of_results(self, results, place, inputs):
        """What a call returns, a tuple where that is several. place: of the losses among these."""
        if not isinstance(results, tuple):
            return self(results, inputs)
        return (*results[:place], self(results[place], inputs), *results[place + 1 :])

    def __call__(self, losses, inputs):
        """A tensor without dimensions, of the losses' dtype.

        Added in float32, in an order that the number of rows fixes. The rows that count are counted
        on the device: NaN if there are none, as PyTorch has it.
        """
        is_double = losses.dtype == torch.float64
        total = losses.sum(dtype=torch.float64 if is_double else torch.float32)
        if self.reduction == "mean":
            total = total / (inputs[self.target] != self.ignored).sum()
        return total.to(losses.dtype)
