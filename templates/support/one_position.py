"""Convolutions whose kernel has one position: a product of matrices, of x as it is.

cuDNN takes x in channels_last, into which a contiguous x is copied. cuBLAS reads it either way: of
each image it multiplies the transpose [positions, channels], and writes rows as channels_last has
them. Where autograd follows, x is saved as it came, and its gradient is written contiguous. The
gradient of the weight is cuDNN's, for which the backward pass copies x: a sum over all images is no
product of contiguous ones.

Only where both libraries compute alike by PyTorch's settings, and where cuBLAS is as fast.
"""

from math import prod

import torch
from torch.autograd.function import once_differentiable

from .functions import batched_product
from .memory_formats import as_channels_last, is_last
from .stand_in import is_traced

# In matrices with rows of other lengths, cuBLAS reads and writes single elements.
_ROW_BYTES = 16
_LEAST_POSITIONS = 256
# A block of cuBLAS computes so many rows: the last one of an image may have less to do.
_TILE = 64
_MOST_IDLE = 1 / 8  # of what the blocks could compute
# Of fewer results, there are not enough blocks: cuBLAS may divide the sums among several, and adds
# up what is rounded to 16 bits already. cuDNN does not.
_LEAST_RESULTS = 1 << 21


def is_product(module, x, weight, dtype):
    """Whether `multiply` is there for the convolution of x, which is padded, in `dtype`."""
    if module.groups != 1 or max(weight.shape[2:]) > 1 or max(module.stride) > 1:
        return False
    paddings = () if isinstance(module.padding, str) else module.padding
    if any(paddings) or any(module.output_padding) or x.dtype != dtype:
        return False
    if torch.compiler.is_compiling() or is_traced(x) or not x.is_contiguous():
        return False
    if is_last(weight):  # the result and both gradients are in that format, too
        return False
    size, positions, channels = x.element_size(), prod(x.shape[2:]), weight.shape[:2]
    if any(size * each % _ROW_BYTES for each in (positions, *channels)):
        return False
    return _is_fast(x.shape[0], positions, min(channels)) and _is_alike(dtype)


def multiply(package, x, weight, transposed):
    """The convolution without its bias, with channels as the innermost dimension of its memory.

    x: [batch, channels, *positions], contiguous. weight: in the dtype of x.
    """
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _Product.apply(x, weight, package, transposed)
    return _product(x, weight, transposed)


def _is_fast(batch, positions, channels):
    """As fast as cuDNN, of so many results."""
    if positions < _LEAST_POSITIONS or batch * positions * channels < _LEAST_RESULTS:
        return False
    return -positions % _TILE <= _MOST_IDLE * positions


def _is_alike(dtype):
    """Whether cuBLAS is to compute in the precision in which cuDNN is to."""
    if not torch.backends.cudnn.enabled or torch.are_deterministic_algorithms_enabled():
        return False
    matmul = torch.backends.cuda.matmul
    if dtype == torch.float32:
        settings = (torch.backends.cudnn.conv.fp32_precision, matmul.fp32_precision)
        return len({each == "tf32" for each in settings}) == 1
    return dtype != torch.float16 or not matmul.allow_fp16_accumulation


def _matrix(weight, transposed):
    """[channels of the result, channels of x]."""
    return weight.flatten(1).T if transposed else weight.flatten(1)


def _product(x, weight, transposed):
    images, matrix = x.flatten(2), _matrix(weight, transposed)
    batch, channels, positions = images.shape
    result = x.new_empty(batch, positions, matrix.shape[0])
    batched_product(images.mT, matrix.T.expand(batch, -1, -1), result)
    return result.mT.unflatten(2, x.shape[2:])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, package, transposed):
        ctx.package, ctx.transposed = package, transposed
        ctx.save_for_backward(x, weight)
        return _product(x, weight, transposed)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad[:2]
        found, by_product = [None, None], wants_x and _is_alike(x.dtype)
        if by_product:
            matrix = _matrix(weight, ctx.transposed)
            found[0] = torch.empty_like(x, memory_format=torch.contiguous_format)
            given = matrix.T.expand(x.shape[0], -1, -1), grad.flatten(2)
            batched_product(*given, found[0].flatten(2))
        if wants_weight or (wants_x and not by_product):
            wanted = (wants_x and not by_product, wants_weight)
            made = _gradients(ctx.package, grad, x, weight, ctx.transposed, wanted)
            found = [mine if each is None else each for each, mine in zip(found, made, strict=True)]
        return *found, None, None


def _gradients(package, grad, x, weight, transposed, wanted):
    """Those of x and of the weight as a convolution has them, in channels_last."""
    shapes = x.shape, weight.shape
    if x.dim() == 3:  # PyTorch has no channels_last for one dimension of positions
        grad, x, weight = (each.unsqueeze(2) for each in (grad, x, weight))
    grad, x = (as_channels_last(package, each, each.dtype) for each in (grad, x))
    nothing, one = (0,) * (x.dim() - 2), (1,) * (x.dim() - 2)
    options = (one, nothing, one, transposed, nothing, 1, (*wanted, False))
    made = torch.ops.aten.convolution_backward(grad, x, weight, None, *options)[:2]
    return [
        None if each is None else each.flatten(1).view(shape)
        for each, shape in zip(made, shapes, strict=True)
    ]
