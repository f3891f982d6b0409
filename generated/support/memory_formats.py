"""Tensors [batch, channels, *positions] from one memory format to the other.

A package with a convolution has a kernel for that (kernels/image_copy.cuh), because PyTorch's copy
has half the bandwidth of one that keeps the order. It copies what is dense in one of both formats.
PyTorch copies

- what has other strides, one channel or one position, or elements that are not of 16 or 32 bits,
- tensors of less than a megabyte: the time of the call, which is longer, counts more,
- small images, of which the kernel has a block each,
- few channels in 16 bits from channels_last, for which the kernel has no vectors,
- under torch.compile, which may fuse a copy with what comes before.

The gradient of a copy to channels_last comes in that format, too. PyTorch's would be contiguous
where it works with contiguous tensors, and what made the tensor goes on with the gradient: so it is
copied back there.
"""

import functools

import torch

from .op_schemas import describe

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_LEAST_BYTES = 1 << 20
_LEAST_IMAGE = 256  # elements, as in torch_image_copy.h
_LEAST_VECTOR = 16  # bytes, as there


def as_channels_last(package, x, dtype, grad_last=True):
    """`x` in the dtype, with channels as the innermost dimension of its memory.

    grad_last: whether the gradient of `x` may have that format; else it is contiguous.
    """
    if is_copied(x, dtype) and x.is_contiguous():
        return _recorded(_ToChannelsLast, package, x, dtype, grad_last)
    if not grad_last:
        x = with_contiguous_gradient(package, x)
    if x.shape[1] > 1:
        return x.to(dtype=dtype, memory_format=_FORMATS[x.dim()])
    # Of one channel a contiguous tensor is that already, but PyTorch tells formats by strides.
    return x.to(dtype).contiguous().squeeze(1).unsqueeze(-1).movedim(-1, 1)


def with_channels_innermost(package, x, grad_last=True):
    """`x` as [batch, *positions, channels]. In memory it is that, too, if it was contiguous.

    grad_last: as of as_channels_last().
    """
    if is_copied(x, x.dtype) and x.is_contiguous():
        x = _recorded(_ToChannelsLast, package, x, x.dtype, grad_last)
    elif not grad_last:
        x = with_contiguous_gradient(package, x)
    return x.movedim(1, -1)


def with_contiguous_gradient(package, x):
    """`x`, whose gradient is brought to contiguous memory, if it has one."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x
    if torch.compiler.is_compiling():
        return x.flatten(1).view(x.shape)  # the gradient of which is made by reshape
    return _ContiguousGradient.apply(x, package)


def as_contiguous(package, x):
    """`x`, which is in channels_last, in contiguous memory, with the strides of that."""
    if x.is_contiguous():
        # Sizes of 1 make both formats one, but by its strides PyTorch would go on in channels_last.
        return x.flatten(1).view(x.shape)
    narrow = x.dtype.itemsize == 2 and x.shape[1] * x.dtype.itemsize < _LEAST_VECTOR
    if not narrow and is_copied(x, x.dtype) and x.movedim(1, -1).is_contiguous():
        return _recorded(_ToContiguous, package, x, x.dtype)
    return x.contiguous()


def with_zeros(package, x, dtype, channels):
    """`x` in channels_last, with zeros behind its channels. Autograd does not follow.

    x: in the dtype, of 16 bits, or in float32. channels: of the result, a multiple of 8.
    """
    made = _padding_op(package)(x.flatten(2), channels, _mode(package, x, dtype))
    return made.mT.view(x.shape[0], channels, *x.shape[2:])


def is_last(x):
    """Whether PyTorch takes an operand for one in channels_last: by its strides, dense or not."""
    strides = x.stride()
    if x.dim() not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for index in (1, *range(x.dim() - 1, 1, -1), 0):
        if strides[index] < least or (index == 0 and strides[1] == least):
            return False
        least = strides[index] * max(x.shape[index], 1)
    return True


def is_only_last(x):
    """Whether channels are the innermost dimension of its memory alone, as between regions."""
    return x.movedim(1, -1).is_contiguous() and not x.is_contiguous()


def is_copied(x, dtype):
    """Whether the kernel copies such a tensor, if it has the strides for it."""
    if torch.compiler.is_compiling() or x.shape[0] == 0 or x.shape[1] == 1:
        return False
    image = x.numel() // x.shape[0]
    if x.nbytes < _LEAST_BYTES or image < _LEAST_IMAGE or image == x.shape[1]:
        return False
    if not x.dtype.is_floating_point or x.dtype.itemsize not in (2, 4):
        return False
    return x.dtype == dtype or (x.dtype == torch.float32 and dtype.itemsize == 2)


def _recorded(function, package, x, *options):
    """What the function's forward returns; autograd knows of it where it has to."""
    if torch.is_grad_enabled() and x.requires_grad:
        return function.apply(x, package, *options)
    return function.forward(None, x, package, *options)


class _ToChannelsLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, package, dtype, grad_last):
        if ctx is not None:
            ctx.dtype, ctx.package, ctx.grad_last = x.dtype, package, grad_last
        return _op(package)(x.flatten(2), _mode(package, x, dtype)).mT.view(x.shape)

    @staticmethod
    def backward(ctx, grad):
        if ctx.grad_last:
            grad = grad.to(ctx.dtype)  # in any format, as it comes
        elif grad.dtype == ctx.dtype:
            grad = as_contiguous(ctx.package, grad)
        else:  # in one pass
            grad = grad.to(ctx.dtype, memory_format=torch.contiguous_format)
        return grad, None, None, None


class _ContiguousGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, package):
        ctx.package = package
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return as_contiguous(ctx.package, grad), None


class _ToContiguous(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, package, dtype):
        if ctx is not None:
            ctx.package = package
        images = x.movedim(1, -1).flatten(1, -2)
        return _op(package)(images, -1).view(x.shape)

    @staticmethod
    def backward(ctx, grad):
        return with_channels_innermost(ctx.package, grad).movedim(-1, 1), None, None


@functools.cache
def _op(package):
    op = package.find_op("copy_images")

    def fake(images, dtype_mode):
        count, rows, columns = images.shape
        return images.new_empty((count, columns, rows), dtype=_copied(package, images, dtype_mode))

    describe(op, fake, lambda *_, **__: 0)
    return op


@functools.cache
def _padding_op(package):
    op = package.find_op("pad_images")

    def fake(images, more, dtype_mode):
        shape = (images.shape[0], images.shape[2], more)
        return images.new_empty(shape, dtype=_copied(package, images, dtype_mode))

    describe(op, fake, lambda *_, **__: 0)
    return op


def _mode(package, x, dtype):
    """What the ops take for a copy in a dtype: its mode, or -1 where that is the tensor's own."""
    return -1 if x.dtype == dtype else package.mode_of("activation", dtype)


def _copied(package, images, dtype_mode):
    """The dtype of a copy."""
    return images.dtype if dtype_mode < 0 else package.dtypes[dtype_mode]["activation"]
