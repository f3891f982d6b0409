"""Depthwise convolutions in float32: the gradient of the weight is made of contiguous operands.

PyTorch's convolution takes cuDNN for operands in channels_last, and kernels of PyTorch's own for
contiguous ones. cuDNN's gradients of the weight are the faster ones in 16 bits, and for the kernels
of _CUDNN; else they take several times as long in float32. So do those of x with three dimensions
of positions. The forward pass is made in channels_last, as of any convolution (convolution.py), but
x is saved as it came, and the gradient is brought to contiguous memory (memory_formats.py).
A trace of torch.compile gets a contiguous forward pass, too: its operators have the gradients then.
"""

from math import prod

import torch
from torch.autograd.function import once_differentiable

from .functions import convolution, in_numbers
from .memory_formats import as_channels_last, as_contiguous, is_last

_CUDNN = ((3, 3), (5, 5))
_MOST = (1 << 31) - 1  # elements, which PyTorch's kernels count in 32 bits


def has_own_gradients(module, x, weight, dtype):
    """Whether `convolve` is there for a convolution of operands in `dtype`, which autograd follows.

    PyTorch has no such kernels for transposed ones. It refuses strides beside padding "same".
    """
    if module.transposed or not 1 < module.groups == x.shape[1]:
        return False
    if module.padding == "same" and max(module.stride) > 1:
        return False
    if tuple(weight.shape[2:]) in _CUDNN:
        return False
    if not x.dtype == weight.dtype == dtype == torch.float32:
        return False
    return torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)


def is_small(x, shape):
    """Whether PyTorch's kernels take so many elements. shape: the result's."""
    return max(x.numel(), prod(shape)) <= _MOST


def convolve(package, x, weight, stride, padding, dilation):
    """The convolution, in channels_last. The options have an entry for each dimension, or a word.

    x: [batch, channels, *positions] with two or three dimensions of positions.
    """
    x, padding = in_numbers(x, weight, padding, dilation)
    options = (stride, padding, dilation)
    if torch.compiler.is_compiling():
        operands = (as_contiguous(package, each) for each in (x, weight))
        made = convolution(*operands, *options, x.shape[1])
        return as_channels_last(package, made, made.dtype)
    return _Depthwise.apply(x, weight, package, options)


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, package, options):
        ctx.package, ctx.options = package, options
        ctx.save_for_backward(x, weight)
        return convolution(as_channels_last(package, x, x.dtype), weight, *options, x.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        options, package, found = ctx.options, ctx.package, [None, None]
        if ctx.needs_input_grad[0]:
            found[0] = _gradient_of_x(package, grad, x, weight, options)
        if ctx.needs_input_grad[1]:
            operands = (as_contiguous(package, each) for each in (grad, x, weight))
            found[1] = _gradients(*operands, options, (False, True, False))[1]
        return *found, None, None


def _gradient_of_x(package, grad, x, weight, options):
    """In channels_last where x or the weight is, as PyTorch's."""
    wanted, is_either = (True, False, False), is_last(x) or is_last(weight)
    if x.dim() == 5:
        operands = (as_contiguous(package, each) for each in (grad, x, weight))
        found = _gradients(*operands, options, wanted)[0]
        return as_channels_last(package, found, found.dtype) if is_either else found
    # Of x this reads nothing but the format.
    like = x if is_last(x) else torch.empty_like(x, memory_format=torch.channels_last)
    grad = as_channels_last(package, grad, grad.dtype)
    found = _gradients(grad, like, weight, options, wanted)[0]
    return found if is_either else as_contiguous(package, found)


def _gradients(grad, x, weight, options, wanted):
    stride, padding, dilation = options
    rest = (stride, padding, dilation, False, (0,) * len(dilation), x.shape[1], wanted)
    return torch.ops.aten.convolution_backward(grad, x, weight, None, *rest)
