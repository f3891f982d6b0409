"""A residual network of linear layers for vectors, as He et al. (2016) have it for images.

A block is two layers with batch norms and a shortcut around them. What follows each product is in a module of its own,
so that it can be one kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

BATCH, FEATURES, WIDTH, CLASSES, DEPTH = 256, 64, 128, 10, 3


class Shortcut(nn.Module):
    """The second half of a block: a layer, its norm, the sum with what came in, and ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width, bias=False)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor, shortcut: Tensor) -> Tensor:
        return torch.relu(self.norm(self.fc(x)) + shortcut)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())
        self.outer = Shortcut(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.inner(x), x)


class Model(nn.Module):
    def __init__(self, features: int, width: int, classes: int, depth: int = DEPTH) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(features, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


def get_init_inputs() -> list:
    """The constructor's arguments."""
    return [FEATURES, WIDTH, CLASSES]


def get_inputs() -> list[Tensor]:
    """An example of what forward takes."""
    return [torch.randn(BATCH, FEATURES)]
