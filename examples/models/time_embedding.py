"""A denoiser of vectors for diffusion (Ho et al., 2020): an MLP whose layers are told the time.

The time becomes sines and cosines, these become an embedding, and each layer's norm is scaled and shifted by it (Perez
et al., 2018).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

BATCH, FEATURES, WIDTH, DEPTH = 256, 32, 128, 2


class TimeEmbedding(nn.Module):
    def __init__(self, width: int, periods: int = 64) -> None:
        super().__init__()
        self.register_buffer("rates", torch.exp(torch.linspace(0, -math.log(10000), periods)))
        self.mlp = nn.Sequential(nn.Linear(2 * periods, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())

    def forward(self, time: Tensor) -> Tensor:
        angles = time[:, None] * self.rates
        return self.mlp(torch.cat([angles.sin(), angles.cos()], dim=-1))


class Modulated(nn.Module):
    """A layer whose norm is scaled and shifted from outside."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(features, width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        normed = self.norm(self.fc(x))
        return nn.functional.gelu(normed + normed * scale + shift)


class Model(nn.Module):
    def __init__(self, features: int, width: int, depth: int = DEPTH) -> None:
        super().__init__()
        self.time = TimeEmbedding(width)
        self.first = nn.Linear(features, width)
        self.to_modulation = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(depth))
        self.layers = nn.ModuleList(Modulated(width, width) for _ in range(depth))
        self.last = nn.Linear(width, features)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        embedding = self.time(time)
        x = self.first(x)
        for layer, modulation in zip(self.layers, self.to_modulation, strict=True):
            scale, shift = modulation(embedding).chunk(2, dim=-1)
            x = x + layer(x, scale, shift)
        return self.last(x)


def get_init_inputs() -> list:
    """The constructor's arguments."""
    return [FEATURES, WIDTH]


def get_inputs() -> list[Tensor]:
    """An example of what forward takes."""
    return [torch.randn(BATCH, FEATURES), torch.rand(BATCH) * 1000]
