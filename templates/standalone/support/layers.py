"""Parameters and buffers of layers, under the names and with the initial values of PyTorch's."""

import math

import torch
from torch import nn

from .functions import convolution, pad, transposed_convolution


class Linear(nn.Module):
    """Alone it is the library's product, which this file does not claim to beat."""

    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_features)) if bias else None)
        _draw(self, in_features)

    def forward(self, x):
        return torch.ops.aten.linear(x, self.weight, self.bias)


class _Convolution(nn.Module):
    """Alone it is the library's convolution, which this file does not claim to beat."""

    dimensions, transposed = 0, False

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
    ):
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        if in_channels % groups or out_channels % groups:
            raise ValueError("in_channels and out_channels must be divisible by groups")
        self.kernel_size, self.stride = self._each(kernel_size), self._each(stride)
        self.padding = padding if isinstance(padding, str) else self._each(padding)
        self.dilation, self.output_padding = self._each(dilation), self._each(output_padding)
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._around()
        both = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (both[0], both[1] // groups, *self.kernel_size)
        self.weight = nn.Parameter(torch.empty(shape))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_channels)) if bias else None)
        _draw(self, math.prod(shape[1:]))

    def _each(self, value):
        return (value,) * self.dimensions if isinstance(value, int) else tuple(value)

    def _around(self):
        """What a padding_mode adds, the last dimension first."""
        if self.padding == "valid":
            return [0] * (2 * self.dimensions)
        if self.padding == "same":
            whole = [
                d * (size - 1) for d, size in zip(self.dilation, self.kernel_size, strict=True)
            ]
            return [part for each in whole[::-1] for part in (each // 2, each - each // 2)]
        return [each for each in self.padding[::-1] for _ in range(2)]

    def forward(self, x):
        padding = self.padding
        if self.padding_mode != "zeros":
            x = pad(x, self._reversed_padding_repeated_twice, self.padding_mode)
            padding = (0,) * self.dimensions
        if self.transposed:
            options = (self.stride, padding, self.output_padding, self.dilation, self.groups)
            return transposed_convolution(x, self.weight, *options, self.bias)
        options = (self.stride, padding, self.dilation, self.groups)
        return convolution(x, self.weight, *options, self.bias)


class Conv1d(_Convolution):
    dimensions = 1


class Conv2d(_Convolution):
    dimensions = 2


class Conv3d(_Convolution):
    dimensions = 3


class ConvTranspose1d(_Convolution):
    dimensions, transposed = 1, True


class ConvTranspose2d(_Convolution):
    dimensions, transposed = 2, True


class ConvTranspose3d(_Convolution):
    dimensions, transposed = 3, True


def _draw(layer, fan_in):
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5))
    if layer.bias is not None:
        bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
        nn.init.uniform_(layer.bias, -bound, bound)


class _BatchNorm(nn.Module):
    """Parameters and running statistics of a batch norm."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter(
            "weight", nn.Parameter(torch.ones(num_features)) if affine else None
        )
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features)) if affine else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", torch.zeros(num_features) if tracked else None)
        self.register_buffer("running_var", torch.ones(num_features) if tracked else None)
        self.register_buffer("num_batches_tracked", torch.tensor(0) if tracked else None)


class BatchNorm1d(_BatchNorm):
    """Of rows."""


class BatchNorm2d(_BatchNorm):
    """Of images."""


class BatchNorm3d(_BatchNorm):
    """Of volumes."""


class _InstanceNorm(_BatchNorm):
    """Parameters and running statistics of an instance norm."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)


class InstanceNorm1d(_InstanceNorm):
    """Of sequences."""


class InstanceNorm2d(_InstanceNorm):
    """Of images."""


class InstanceNorm3d(_InstanceNorm):
    """Of volumes."""


class GroupNorm(nn.Module):
    """Parameters of a group norm."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True):
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels, self.eps, self.affine = (
            *(num_groups, num_channels),
            *(eps, affine),
        )
        self.register_parameter(
            "weight", nn.Parameter(torch.ones(num_channels)) if affine else None
        )
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_channels)) if affine else None)


class LayerNorm(nn.Module):
    """Parameters of a layer norm."""

    def __init__(self, shape, eps=1e-5, elementwise_affine=True, bias=True):
        super().__init__()
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        affine = elementwise_affine
        self.register_parameter("weight", nn.Parameter(torch.ones(shape)) if affine else None)
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(shape)) if affine and bias else None
        )


class RMSNorm(nn.Module):
    """Parameters of an RMS norm."""

    def __init__(self, shape, eps=None, elementwise_affine=True):
        super().__init__()
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        self.register_parameter(
            "weight", nn.Parameter(torch.ones(shape)) if elementwise_affine else None
        )


class PReLU(nn.Module):
    """The weight of a prelu."""

    def __init__(self, num_parameters=1, init=0.25):
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = nn.Parameter(torch.full((num_parameters,), float(init)))


class Dropout(nn.Module):
    """What a dropout has besides `training`: the share that it drops."""

    def __init__(self, p):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p must be between 0 and 1, got {p}")
        self.p = p
