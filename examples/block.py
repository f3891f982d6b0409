"""A block to look at: `fusegen fuse examples/block.py:Block --dry-run`."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.GELU(), nn.Dropout(0.1))

    def forward(self, x):
        return x + self.layers(x)


def get_inputs():
    return [torch.randn(512, 1024)]
