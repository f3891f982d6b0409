"""Models that the tests of the backend compile."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    """A block of a ResNet, with relu in place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = (nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += x
        return F.relu(y)


class Diffusion(nn.Module):
    """A block of a U-Net whose embedding scales and shifts the second norm, with a norm of each channel at the end."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(2, channels), nn.GroupNorm(2, channels)
        self.norm3 = nn.InstanceNorm2d(channels, affine=True)
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.embed = nn.Linear(channels, 2 * channels)

    def forward(self, x: Tensor) -> Tensor:
        scale, shift = self.embed(x.mean((2, 3)))[:, :, None, None].chunk(2, 1)
        y = self.conv1(F.silu(self.norm1(x)))
        y = x + self.conv2(F.silu(self.norm2(y) * (1 + scale) + shift))
        return F.leaky_relu(self.norm3(y))


class PostNorm(nn.Module):
    """The end of a transformer's block, as BERT has it, with a dropout that drops nothing in tests of values."""

    def __init__(self, width: int, p: float = 0.0) -> None:
        super().__init__()
        self.up, self.norm, self.drop = nn.Linear(width, width), nn.LayerNorm(width), nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.drop(self.up(x)))


class PreNorm(nn.Module):
    """As Llama has it: its own norm, then a sum that the next one needs, too."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.up, self.norm, self.down = nn.Linear(width, width), nn.RMSNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        x = x + self.up(self.weight * wide.to(x.dtype))
        return x + self.down(self.norm(x))


class Standardized(nn.Module):
    """A convolution whose weights have a batch norm with a gain alone, as NFNets have it, and one with a shift alone
    behind it, with scales of a residual branch."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale, self.alpha = nn.Parameter(torch.rand(1, channels, 1, 1) + 0.5), nn.Parameter(torch.rand(1) + 0.5)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.gain, self.shift = nn.Parameter(torch.rand(channels) + 0.5), nn.Parameter(torch.rand(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.conv.weight.reshape(1, len(self.gain), -1)
        weight = F.batch_norm(rows, None, None, weight=self.gain, training=True, momentum=0.0)
        y = torch.cos(F.conv2d(x, weight.reshape_as(self.conv.weight), self.conv.bias, padding=1))
        y = F.batch_norm(y, self.mean, self.var, bias=self.shift, training=self.training)
        return x + self.alpha * (self.scale * y)


class Modulated(nn.Module):
    """As diffusion transformers have it: norms with a scale and a shift of each sample, and a gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, width)
        self.of_sample = nn.Linear(width, 5 * width)

    def forward(self, x: Tensor) -> Tensor:
        scale, shift, gate, further, other = self.of_sample(x.mean(1)).chunk(5, 1)
        y = self.up(self.norm(x) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1))
        x = x + gate.unsqueeze(1) * y
        return self.up(self.norm(x) * (1 + further[:, None]) + other[:, None]) + x


class Tabular(nn.Module):
    """Layers of one kind, in an nn.Sequential."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *(part for _ in range(3) for part in (nn.Linear(width, width), nn.BatchNorm1d(width), nn.GELU()))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Broken(nn.Module):
    """Two graphs: Python looks at a value between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = PostNorm(width), PostNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if x.sum() > 1e9:
            x = x + 1
        return self.second(x)


class Frozen(nn.Module):
    """The first layer is run without gradients."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = PostNorm(width), PostNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.first(x)
        return self.second(x)
