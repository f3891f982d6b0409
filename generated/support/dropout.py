"""Dropout: what a module draws in a call, and the factors that its kernels make of it.

A call draws a seed on its device, by torch's own generator of that device: torch.manual_seed,
checkpoints, CUDA graphs and torch.compile do with it what they do with nn.Dropout's numbers. The
kernels make a factor of each element from the seed, in both directions, and store no mask. Element
n, counted in the order of [rows, channels], is dropped if word n % 4 of Philox4x32-10 of the
counter (n / 4, stream, 0) under the key `seed` is below p 2^32. stream: 0 for the first dropout of
the chain, 1 for the next. Of a drop path, n is the index of the first dimension.
"""

import torch
from torch import nn

from .drawn_seed import draw_seed

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


class DropPath(nn.Module):
    """Stochastic depth: drops all of x[i] with the probability p, and divides the rest by 1 - p.

    As torchvision.ops.StochasticDepth with mode "row". In evaluation it returns x.
    """

    def __init__(self, p):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p must be between 0 and 1, got {p}")
        self.p = p

    def forward(self, x):
        if self.p == 0 or not self.training:
            return x
        if self.p == 1:
            return x * 0
        factor = x.new_empty((x.shape[0], *(1,) * (x.dim() - 1))).bernoulli_(1 - self.p)
        return x * factor.div_(1 - self.p)

    def extra_repr(self):
        return f"p={self.p}"


def share(module):
    """The p with which a dropout drops in a call: 0 where it is not in training."""
    return module.p if module.training else 0.0


def is_no_share(p):
    """Whether PyTorch refuses this p."""
    return not 0 <= p <= 1


def sample_rows(sizes):
    """The rows of a sample. sizes: of the dimensions between the first and the channels."""
    rows = 1
    for size in sizes:
        rows *= size
    return rows


class DrawsFactors:
    """What a generated module tells of its dropouts, besides calls.

    Under the same state of torch's generator a call and fusegen_seed() draw the same seed.
    """

    # By attribute: the stream, whether it draws for samples, and the dimension of the channels.
    _fusegen_dropouts = {}  # noqa: RUF012

    def fusegen_factors(self, name, seed, shape):
        """What a call that draws `seed` multiplies a value of this shape with, in dropout `name`.

        Returns 0 or 1 / (1 - p) in float64, for each element or, of a drop path, for each index of
        the first dimension; 1 in evaluation. Raises KeyError for a name that is no dropout's.
        """
        return self.fusegen_factors_of(name, seed, share(self._modules[name]), shape)

    @classmethod
    def fusegen_factors_of(cls, name, seed, p, shape):
        """The same for another p."""
        stream, by_sample, channels = cls._fusegen_dropouts[name]
        if by_sample:
            numbers = torch.arange(shape[0], device=seed.device).view(-1, *(1,) * (len(shape) - 1))
        else:
            order = list(shape)
            order.append(order.pop(channels))
            numbers = torch.arange(torch.Size(shape).numel(), device=seed.device).view(order)
            numbers = numbers.movedim(-1, channels)
        return factors(seed, stream, p, numbers)

    @staticmethod
    def fusegen_seed(device):
        """Draws a seed as a call on this device does."""
        return draw_seed(device)


def factors(seed, stream, p, numbers):
    """What the kernels multiply with: 0 or 1 / (1 - p), in float64, of elements of these numbers.

    seed: as draw_seed() makes it. numbers: an int64 tensor of any shape. On any device.
    """
    block = numbers >> 2
    zero = torch.zeros_like(block)
    words = philox((block & _WORD, block >> 32 & _WORD, zero + stream, zero), seed)
    word = torch.stack(words).gather(0, (numbers & 3).unsqueeze(0)).squeeze(0)
    kept = word >= min(round(p * 2**32), _WORD)
    return kept * torch.tensor(1 / (1 - p) if p < 1 else 0.0, dtype=torch.float64)


def philox(counter, key):
    """Philox4x32-10: four words for each counter, all as int64 tensors of values below 2^32.

    counter: four such tensors. key: an int64 tensor, of two words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key & _WORD, key >> 32 & _WORD
    for _ in range(10):
        high0, low0 = _product(c0, _MULTIPLIERS[0])
        high1, low1 = _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _WEYL[0] & _WORD, k1 + _WEYL[1] & _WORD
    return c0, c1, c2, c3


def _product(word, multiplier):
    """Both words of a product, whose 64 bits an int64 does not hold as a positive number."""
    low = word * (multiplier & 0xFFFF)
    high = word * (multiplier >> 16) + (low >> 16)
    return high >> 16, (high & 0xFFFF) << 16 | low & 0xFFFF
