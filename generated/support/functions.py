"""The functions of PyTorch that convolutions here are made of."""

import torch
from torch.nn import functional as F


def convolution(x, weight, stride, padding, dilation, groups=1):
    """Without a bias, over two or three dimensions of positions."""
    function = F.conv3d if x.dim() == 5 else F.conv2d
    return function(x, weight, None, stride, padding, dilation, groups)


def transposed_convolution(x, weight, stride, padding, output_padding, dilation, groups):
    """The same, transposed."""
    function = F.conv_transpose3d if x.dim() == 5 else F.conv_transpose2d
    return function(x, weight, None, stride, padding, output_padding, groups, dilation)


def pad(x, around, mode="constant"):
    """x with so many further elements around, the last dimension first."""
    return F.pad(x, around, mode=mode)


def in_numbers(x, weight, padding, dilation):
    """x and the padding, as PyTorch makes them of a word: an odd one pads x at its end."""
    if not isinstance(padding, str):
        return x, padding
    if padding == "valid":
        return x, (0,) * len(dilation)
    whole = [d * (size - 1) for d, size in zip(dilation, weight.shape[2:], strict=True)]
    if any(each % 2 for each in whole):
        x = pad(x, [n for each in reversed(whole) for n in (0, each % 2)])
    return x, tuple(each // 2 for each in whole)


def batched_product(left, right, result):
    """Writes the products of matrices; autocast leaves the operands as they are."""
    torch.bmm(left, right, out=result)
