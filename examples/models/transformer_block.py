"""A block of a transformer: attention (Vaswani et al., 2017) and a gated feed-forward network (Shazeer, 2020), each
behind an RMS norm (Zhang and Sennrich, 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, LENGTH, WIDTH, HEADS = 8, 128, 256, 4


class Norm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Gate(nn.Module):
    """A layer whose result, through SiLU, is a factor of another's."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor, up: Tensor) -> Tensor:
        return F.silu(self.fc(x)) * up


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.gate = Gate(width, hidden)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.gate(x, self.up(x)))


class Model(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = Norm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = Norm(width)
        self.feed_forward = FeedForward(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


def get_init_inputs() -> list:
    """The constructor's arguments."""
    return [WIDTH, HEADS]


def get_inputs() -> list[Tensor]:
    """An example of what forward takes."""
    return [torch.randn(BATCH, LENGTH, WIDTH)]
