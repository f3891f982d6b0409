"""Pooling layers, which stay the library's: this file does not claim to beat it."""

import torch
from torch import nn


class _Pool(nn.Module):
    """operator: of `torch.ops.aten`. names: of its arguments behind the input."""

    operator, names = "", ()

    def __init__(self, *given, **options):
        super().__init__()
        for name in self.names:
            setattr(self, name, self.default(name))
        for name, value in (*zip(self.names, given, strict=False), *options.items()):
            setattr(self, name, value)

    @staticmethod
    def default(name):
        defaults = {"padding": 0, "dilation": 1, "ceil_mode": False, "count_include_pad": True}
        return defaults.get(name)

    def forward(self, x):
        given = {name: getattr(self, name) for name in self.names}
        given = {name: value for name, value in given.items() if value is not None}
        result = getattr(torch.ops.aten, self.operator)(x, **_listed(given))
        return result[0] if isinstance(result, tuple) else result


def _listed(given):
    """Numbers of one dimension are lists in the schema; others are repeated."""
    sizes = ("kernel_size", "stride", "padding", "dilation", "output_size")
    return {
        name: [value] if name in sizes and isinstance(value, int) else value
        for name, value in given.items()
    }


_WINDOW = ("kernel_size", "stride", "padding")
_MAX = (*_WINDOW, "dilation", "ceil_mode")
_AVG = (*_WINDOW, "ceil_mode", "count_include_pad")


class MaxPool1d(_Pool):
    operator, names = "max_pool1d", _MAX


class MaxPool2d(_Pool):
    operator, names = "max_pool2d", _MAX


class MaxPool3d(_Pool):
    operator, names = "max_pool3d", _MAX


class AvgPool1d(_Pool):
    operator, names = "avg_pool1d", _AVG


class AvgPool2d(_Pool):
    operator, names = "avg_pool2d", (*_AVG, "divisor_override")


class AvgPool3d(_Pool):
    operator, names = "avg_pool3d", (*_AVG, "divisor_override")


class _AdaptivePool(_Pool):
    names, dimensions = ("output_size",), 0

    def forward(self, x):
        size = self.output_size
        size = (size,) * self.dimensions if isinstance(size, int) else size
        result = getattr(torch.ops.aten, self.operator)(x, size)
        return result[0] if isinstance(result, tuple) else result


class AdaptiveAvgPool1d(_AdaptivePool):
    operator, dimensions = "adaptive_avg_pool1d", 1


class AdaptiveAvgPool2d(_AdaptivePool):
    operator, dimensions = "adaptive_avg_pool2d", 2


class AdaptiveAvgPool3d(_AdaptivePool):
    operator, dimensions = "adaptive_avg_pool3d", 3


class AdaptiveMaxPool1d(_AdaptivePool):
    operator, dimensions = "adaptive_max_pool1d", 1


class AdaptiveMaxPool2d(_AdaptivePool):
    operator, dimensions = "adaptive_max_pool2d", 2


class AdaptiveMaxPool3d(_AdaptivePool):
    operator, dimensions = "adaptive_max_pool3d", 3


class _PowerPool(_Pool):
    names, dimensions = ("norm_type", "kernel_size", "stride", "ceil_mode"), 0

    def forward(self, x):
        kernel = self.kernel_size
        kernel = (kernel,) * self.dimensions if isinstance(kernel, int) else tuple(kernel)
        stride = kernel if self.stride is None else self.stride
        stride = (stride,) * self.dimensions if isinstance(stride, int) else stride
        mean = getattr(torch.ops.aten, f"avg_pool{self.dimensions}d")
        means = mean(x.pow(self.norm_type), kernel, stride, [0] * self.dimensions, self.ceil_mode)
        count = torch.Size(kernel).numel()
        return (means.sign() * means.abs().relu()).mul(count).pow(1.0 / self.norm_type)


class LPPool1d(_PowerPool):
    dimensions = 1


class LPPool2d(_PowerPool):
    dimensions = 2


class LPPool3d(_PowerPool):
    dimensions = 3
