"""The convolution that a chain begins with: PyTorch's own op, in channels_last.

The kernels take [rows, channels]. In channels_last memory a result [batch, channels, *positions] is
that by a view: a row for each position of each of the batch. The convolution's input is copied to
that format (memory_formats.py), unless it is in it, or the kernel has one position
(one_position.py); in 16 bits few channels get zeros beside them (few_channels.py). The gradients of
a depthwise convolution are made otherwise in float32 (depthwise.py). The chain's result and its
input's gradient are in the format of PyTorch's convolution. Where that is contiguous, most chains'
kernels write the result so themselves, and read further inputs and the result's gradient so; other
chains' results and gradients are copied.

The bias is left to the kernels. PyTorch adds it after cuDNN has rounded the result to 16 bits, in a
pass of its own, and rounds again: that the kernels add it to the rounded result is no less exact.
Only its own depthwise kernels, which it takes for contiguous operands, add it before they round.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .depthwise import convolve, has_own_gradients, is_small
from .few_channels import WithZeros, convolve_with_zeros, padded_channels
from .functions import convolution, in_numbers, pad, transposed_convolution
from .images import call_on_images
from .memory_formats import as_channels_last, is_last, is_only_last, with_contiguous_gradient
from .one_position import is_product, multiply
from .parametrised import kind_of
from .stand_in import FUNCTION, Eager, misfit_plain

_KINDS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_DIMENSIONS = {kind: index % 3 + 1 for index, kind in enumerate(_KINDS)}
_METHODS = ("_conv_forward", "_output_padding")
_OWN = {kind: tuple(getattr(kind, name, None) for name in _METHODS) for kind in _KINDS}
_FUNCTIONS = (
    *(F.conv1d, F.conv2d, F.conv3d, F.pad),
    *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
)

UNBATCHED = Eager("the input has no dimension for the batch")


class Convolved(NamedTuple):
    """Stands for the first argument of an operator: the result of a convolution, yet to be made.

    dtype: of its operands, to which autocast casts them.
    """

    module: nn.Module
    x: Tensor
    weight: Tensor
    dtype: torch.dtype

    @property
    def shape(self):
        """That of the convolution's result."""
        module, weight = self.module, self.weight
        channels = weight.shape[1] * module.groups if module.transposed else weight.shape[0]
        return result_shape(module, self.x, weight, channels)

    def call(self, module, operator, arguments, last):
        """As FusedModule._fusegen_run_part() calls it. Makes the convolution first."""
        padded = _padded(self)
        # PyTorch's result is in channels_last where an operand is, and so are both gradients.
        is_either = is_last(padded.x) or is_last(padded.weight)
        # A module of several regions brings the sum of an input's gradients into its format.
        grad_last = last is not None or is_either or is_only_last(padded.x)
        given = [_convolve(operator.package, padded, grad_last), *arguments[1:]]
        return call_on_images(operator, given, is_either if last is None else last)


def misfit_convolution(name, module, weight):
    """Why the layer is no plain convolution of torch.nn."""
    own, kind = module.__dict__, kind_of(module)
    if any(method in own for method in _METHODS):
        return Eager(f"{name} has a call of its own")
    dimensions = _DIMENSIONS[kind]
    for each in (module.stride, module.padding, module.dilation, module.output_padding):
        if type(each) is not str and (type(each) is not tuple or len(each) != dimensions):
            return Eager(f"{name} has options that {kind.__name__} would not make")
    if 0 in module.stride:
        return Eager(f"{name} has a stride of 0, which {kind.__name__} refuses")
    if module.transposed and module.padding_mode != "zeros":
        return Eager(f"{name} has a padding_mode, which {kind.__name__} refuses")
    if tuple(getattr(kind, method, None) for method in _METHODS) != _OWN[kind]:
        return Eager(f"a method of {kind.__name__} was replaced")
    now = (
        *(F.conv1d, F.conv2d, F.conv3d, F.pad),
        *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
    )
    if now != _FUNCTIONS:
        return FUNCTION
    return misfit_plain(f"{name}.weight", weight, dimensions + 2)


def result_shape(module, x, weight, channels):
    """That of the convolution's result, [batch, channels, *positions]."""
    kernel, given = weight.shape[2:], x.shape[2:]
    if module.padding == "same":
        return (x.shape[0], channels, *given)
    padding = (0,) * len(kernel) if module.padding == "valid" else module.padding
    found = []
    for index, size in enumerate(given):
        reach = module.dilation[index] * (kernel[index] - 1) + 1
        if module.transposed:
            size = (size - 1) * module.stride[index] + reach + module.output_padding[index]
            found.append(size - 2 * padding[index])
        else:
            found.append((size + 2 * padding[index] - reach) // module.stride[index] + 1)
    return (x.shape[0], channels, *found)


def _padded(convolved):
    """With what a padding_mode other than zeros adds to the input."""
    module, x = convolved.module, convolved.x
    if module.padding_mode == "zeros":
        return convolved
    around = module._reversed_padding_repeated_twice
    return convolved._replace(x=pad(x, around, module.padding_mode))


def _convolve(package, convolved, grad_last):
    """The convolution without its bias, made in channels_last. Its input is padded.

    grad_last: whether the gradients of the operands may be in channels_last; else contiguous.
    """
    module, x, weight, dtype = convolved
    if is_product(module, x, weight, dtype):
        return multiply(package, x, weight.to(dtype), module.transposed)
    padding = module.padding
    if module.padding_mode != "zeros":
        padding = (0,) * (x.dim() - 2)
    options = [module.stride, padding, module.dilation, module.output_padding]
    is_depthwise = has_own_gradients(module, x, weight, dtype) and is_small(
        x,
        result_shape(module, x, weight, weight.shape[0]),  # or larger, if x is padded already
    )
    followed = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    more = padded_channels(module, x, weight, dtype, followed=followed)
    # PyTorch has no channels_last for one dimension of positions: it is the last of two.
    is_1d = x.dim() == 3
    if is_1d:
        x, weight = x.unsqueeze(2), weight.unsqueeze(2)
        nothing = (1, 0, 1, 0)
        options = [
            each if isinstance(each, str) else (one, *each)
            for one, each in zip(nothing, options, strict=True)
        ]
    stride, padding, dilation, output_padding = options
    if is_depthwise:
        result = convolve(package, x, weight, stride, padding, dilation)
        return result.squeeze(2) if is_1d else result
    if more:
        x, padding = in_numbers(x, weight, padding, dilation)
    if more and not followed:
        result = convolve_with_zeros(package, x, weight, dtype, more, padding, dilation)
        return result.squeeze(2) if is_1d else result
    x = as_channels_last(package, x, dtype, grad_last)
    grad_last = grad_last or convolved.weight.is_leaf  # to whose strides autograd brings the .grad
    if weight.dtype != dtype:  # else PyTorch brings it into the format of x, and saves no copy
        weight = as_channels_last(package, weight, dtype, grad_last)
    elif not grad_last:
        weight = with_contiguous_gradient(package, weight)
    if more:
        result = WithZeros.apply(x, weight, package, more, padding, dilation)
    elif module.transposed:
        options = (stride, padding, output_padding, dilation, module.groups)
        result = transposed_convolution(x, weight, *options)
    else:
        result = convolution(x, weight, stride, padding, dilation, module.groups)
    return result.squeeze(2) if is_1d else result
