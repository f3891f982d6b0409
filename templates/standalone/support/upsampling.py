"""Layers that give images other sizes, which stay the library's: this file does not claim to beat it."""

import torch
from torch import nn

_OF_A_MODE = {
    "nearest": "upsample_nearest{}d",
    "nearest-exact": "_upsample_nearest_exact{}d",
    "linear": "upsample_linear1d",
    "bilinear": "upsample_bilinear2d",
    "bicubic": "upsample_bicubic2d",
    "trilinear": "upsample_trilinear3d",
}


class Upsample(nn.Module):
    def __init__(self, size=None, scale_factor=None, mode="nearest", align_corners=None):
        super().__init__()
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners = align_corners

    def forward(self, x):
        count = x.dim() - 2
        operator = getattr(torch.ops.aten, _OF_A_MODE[self.mode].format(count))
        corners = () if "nearest" in self.mode else (bool(self.align_corners),)
        size, factors = _each(self.size, count), _each(self.scale_factor, count)
        return operator.vec(x, size, *corners, factors and [float(each) for each in factors])


class PixelShuffle(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, x):
        return torch.ops.aten.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(nn.Module):
    def __init__(self, downscale_factor):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, x):
        return torch.ops.aten.pixel_unshuffle(x, self.downscale_factor)


def _each(value, count):
    """One number for each dimension of positions."""
    return value if value is None or isinstance(value, tuple) else (value,) * count
