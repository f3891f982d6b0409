"""The library's own, which this file does not claim to beat."""

import torch

from ...support.functions import in_numbers


def convolution(x, weight, stride, padding, dilation, groups=1, bias=None):
    count = x.dim() - 2
    x, padding = in_numbers(x, weight, padding, dilation)
    stride = (stride,) * count if isinstance(stride, int) else stride
    options = (stride, padding, dilation, False, (0,) * count, groups)
    return torch.ops.aten.convolution(x, weight, bias, *options)


def transposed_convolution(x, weight, stride, padding, output_padding, dilation, groups, bias=None):
    options = (stride, padding, dilation, True, output_padding, groups)
    return torch.ops.aten.convolution(x, weight, bias, *options)


def pad(x, around, mode="constant"):
    return torch.ops.aten.pad(x, around, mode)


def batched_product(left, right, result):
    torch.ops.aten.bmm.out(left, right, out=result)
