"""Convolutions of few channels in 16 bits: the forward pass has zeros as further channels.

Of channels that are few, or no multiple of 16, most of cuDNN's forward kernels for channels_last
are slower than with zeros up to a multiple of 32. benchmarks/few_channels.py measures both. In
float16 that holds for more than 8 channels that are no multiple of 16, and not with three
dimensions of positions. Strides and kernels of one position gain nothing. Nor do the gradients:
autograd saves the operands as they are without zeros, and makes the gradients of those.

The copy with zeros takes the place of that to channels_last, or comes on top: where x is in that
format, and where autograd saves it so. Then it has to gain more than the time of the copy, which
that of 16 channels does not.
"""

from math import prod

import torch
from torch.autograd.function import once_differentiable

from .functions import convolution
from .memory_formats import is_copied, with_zeros

_CAPABILITY = (9, 0)  # of the figures
_MULTIPLE = 32  # channels with zeros
_FAST = 16  # multiples of which are fast, unless they are few
_MOST_CHANNELS = 256
_LEAST_POSITIONS = 9  # of the kernel
_MOST = (1 << 31) - 1  # elements, which cuDNN counts in 32 bits


def padded_channels(module, x, weight, dtype, *, followed):
    """With how many channels the forward pass of a convolution is made; 0: with as many as x has.

    dtype: of the operands, to which autocast casts them. followed: whether autograd follows.
    """
    if dtype not in (torch.bfloat16, torch.float16) or module.transposed or module.groups != 1:
        return 0
    if max(*module.stride, *module.dilation) > 1:
        return 0
    made, channels, *kernel = weight.shape
    more = -(-channels // _MULTIPLE) * _MULTIPLE
    if x.shape[1] != channels or prod(kernel) < _LEAST_POSITIONS or channels > _MOST_CHANNELS:
        return 0
    if made < more or more * (x.numel() // channels) > _MOST:  # the result is as large as the copy
        return 0
    on_top = followed or not x.is_contiguous()
    if not _is_slow(channels, dtype, on_top, len(kernel)) or not is_copied(x, dtype):
        return 0
    return more if _is_as_measured(x) else 0


def convolve_with_zeros(package, x, weight, dtype, channels, padding, dilation):
    """The convolution with so many channels, in channels_last. Autograd does not follow.

    x, weight: in any format, with two or three dimensions of positions.
    """
    if weight.dtype != torch.float32:
        weight = weight.to(dtype)
    operands = (with_zeros(package, each, dtype, channels) for each in (x, weight))
    return convolution(*operands, 1, padding, dilation)


class WithZeros(torch.autograd.Function):
    """The same, followed by autograd. x, weight: in the dtype of the convolution."""

    @staticmethod
    def forward(ctx, x, weight, package, channels, padding, dilation):
        ctx.save_for_backward(x, weight)
        ctx.padding, ctx.dilation = padding, dilation
        return convolve_with_zeros(package, x, weight, x.dtype, channels, padding, dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        one, nothing = (1,) * (x.dim() - 2), (0,) * (x.dim() - 2)
        options = (one, ctx.padding, ctx.dilation, False, nothing, 1)
        wanted = (*ctx.needs_input_grad[:2], False)
        made = torch.ops.aten.convolution_backward(grad, x, weight, None, *options, wanted)
        return *made[:2], None, None, None, None


def _is_slow(channels, dtype, on_top, dimensions):
    """Whether a copy with zeros gains more than its time."""
    if on_top and channels % _FAST == 0:
        return False
    if dtype == torch.bfloat16:
        return channels < 32 or channels % _FAST != 0
    return dimensions < 3 and channels > 8 and channels % _FAST != 0


def _is_as_measured(x):
    """Whether the kernels of the figures make the convolution, or the emulator."""
    if x.device.type != "cuda":
        return True
    if not torch.backends.cudnn.enabled:
        return False
    return torch.cuda.get_device_capability(x.device) == _CAPABILITY
