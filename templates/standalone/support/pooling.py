"""Pooling layers, which stay the library's: this file does not claim to beat it."""

import torch
from torch import nn


class _Pool(nn.Module):
    """operator: of `torch.ops.aten`. names: of its arguments behind the input."""

    operator, names = "", ()

    def __init__(self, *given, **options):
        super().__init__()
        options |= dict(zip(self.names, given, strict=False))
        for name in self.names:
            setattr(self, name, options.get(name, _DEFAULTS.get(name)))

    def options(self):
        """What is given, by name: sizes for each dimension of positions."""
        dimensions = int(self.operator[-2])
        given = {name: getattr(self, name) for name in self.names}
        return {
            name: (value,) * dimensions if name in _SIZES and isinstance(value, int) else value
            for name, value in given.items()
            if value is not None
        }

    def forward(self, x):
        result = getattr(torch.ops.aten, self.operator)(x, **self.options())
        return result[0] if isinstance(result, tuple) else result


_DEFAULTS = {"padding": 0, "dilation": 1, "ceil_mode": False, "count_include_pad": True}
_SIZES = ("kernel_size", "stride", "padding", "dilation", "output_size")
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


class AdaptiveAvgPool1d(_Pool):
    operator, names = "adaptive_avg_pool1d", ("output_size",)


class AdaptiveAvgPool2d(_Pool):
    operator, names = "adaptive_avg_pool2d", ("output_size",)


class AdaptiveAvgPool3d(_Pool):
    operator, names = "adaptive_avg_pool3d", ("output_size",)


class AdaptiveMaxPool1d(_Pool):
    operator, names = "adaptive_max_pool1d", ("output_size",)


class AdaptiveMaxPool2d(_Pool):
    operator, names = "adaptive_max_pool2d", ("output_size",)


class AdaptiveMaxPool3d(_Pool):
    operator, names = "adaptive_max_pool3d", ("output_size",)


class _PowerPool(_Pool):
    names = ("norm_type", "kernel_size", "stride", "ceil_mode")

    def forward(self, x):
        options = self.options()
        p, count = options.pop("norm_type"), torch.Size(options["kernel_size"]).numel()
        means = getattr(torch.ops.aten, self.operator)(x.pow(p), **options)
        return (means.sign() * means.abs().relu()).mul(count).pow(1.0 / p)


class LPPool1d(_PowerPool):
    operator = "avg_pool1d"


class LPPool2d(_PowerPool):
    operator = "avg_pool2d"


class LPPool3d(_PowerPool):
    operator = "avg_pool3d"
