"""Blocks of today's training code: several layers, branches, results, dropout, submodules."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """One dropout is used twice; its share is an argument."""

    def __init__(self, d: int, h: int, p: float = 0.1) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, h), nn.Linear(h, d)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return x + self.drop(self.down(self.drop(F.gelu(self.up(self.norm(x))))))


class SwiGLU(nn.Module):
    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(a, b, bias=False) for a, b in ((d, h), (d, h), (h, d)))

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class GeGLU(nn.Module):
    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.proj, self.out = nn.Linear(d, 2 * h), nn.Linear(h, d)

    def forward(self, x):
        a, gate = self.proj(x).chunk(2, dim=-1)
        return self.out(a * F.gelu(gate))


class AddNorm(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)

    def forward(self, x, residual):
        total = x + residual
        return self.norm(total), total


class Head(nn.Module):
    """Layers of an nn.Sequential, and parameters of a submodule of the user's."""

    def __init__(self, d: int, h: int, o: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, h, bias=False), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, o))
        self._scale = nn.Module()
        self._scale.gamma = nn.Parameter(torch.randn(o))

    def forward(self, x):
        return F.normalize(self.net(x) * self._scale.gamma, dim=-1)


class LoRA(nn.Module):
    def __init__(self, d: int, o: int, r: int, scale: float = 2.0) -> None:
        super().__init__()
        self.base, self.a, self.b = nn.Linear(d, o), nn.Linear(d, r, bias=False), nn.Linear(r, o, bias=False)
        self.scale = scale

    def forward(self, x):
        return self.base(x) + self.b(self.a(x)) * self.scale


class Film(nn.Module):
    """Its scale has the samples alone."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d, elementwise_affine=False)

    def forward(self, x, scale, place):
        return self.norm(x) * (1 + scale.unsqueeze(1)) + place


class AdaLN(nn.Module):
    """A norm without tensors is used twice, and the second input comes first."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.mod, self.fc = nn.LayerNorm(d, elementwise_affine=False), nn.Linear(d, 6 * d), nn.Linear(d, d)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.mod(F.silu(c)).chunk(6, dim=-1)
        x = x + g1 * (self.norm(x) * (1 + s1) + b1)
        return x + g2 * self.fc(self.norm(x) * (1 + s2) + b2)


class DropPath(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0.0 or not self.training:
            return x
        keep = 1 - self.p
        drawn = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * drawn.div_(keep)


class Residual(nn.Module):
    """Stochastic depth, and a dropout that is a function."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc, self.path = nn.Linear(d, d), DropPath(0.25)

    def forward(self, x, r):
        return self.path(F.dropout(self.fc(x), 0.3, self.training)) + r


class Loss(nn.Module):
    def __init__(self, d: int, c: int) -> None:
        super().__init__()
        self.fc, self.loss = nn.Linear(d, c), nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=3)

    def forward(self, x, target):
        return self.loss(self.fc(x), target)


class Masked(nn.Module):
    def __init__(self, d: int, e: int) -> None:
        super().__init__()
        self.fc = nn.Linear(d, e)

    def forward(self, x, hidden, keep):
        y = self.fc(x).masked_fill(hidden, float("-inf")).softmax(-1)
        return y * keep


class Scores(nn.Module):
    def forward(self, q, k, bias, hidden):
        scores = torch.bmm(q, k.transpose(1, 2)) * 8**-0.5 + bias
        return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)


class Products(nn.Module):
    """Weights of the module itself, one parameter twice."""

    def __init__(self, d: int, h: int) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.randn(d, h)), nn.Parameter(torch.randn(h, d))
        self.scale = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.relu((x * self.scale) @ self.w1) @ self.w2 * self.scale
