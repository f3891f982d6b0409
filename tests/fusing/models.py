"""Small models of several modules, some of which are chains."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Residual(nn.Module):
    """A chain whose layers lie a module deeper, with a number and a parameter of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
        self.factor = 0.75

    def forward(self, x: Tensor) -> Tensor:
        return x + self.net(x) * self.scale * self.factor


class Mixing(nn.Module):
    """No chain: two products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.query(x) @ self.key(x).mT, -1) @ x


class Sorted(nn.Module):
    """No chain: an operator that none has."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.fc(x))
        return torch.sort(y).values


class Model(nn.Module):
    """Two chains of one form, what is none, and an nn.Sequential with a run of three and one of two."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Residual(width) for _ in range(2))
        self.mixing, self.sorted = Mixing(width), Sorted(width)
        self.head = nn.Sequential(
            nn.Linear(width, 24), nn.BatchNorm1d(24), nn.SiLU(), nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 4)
        )
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.sorted(self.mixing(x)))


def made(width: int = 16) -> tuple[Model, Tensor]:
    """A model and an input, always the same."""
    torch.manual_seed(0)
    return Model(width), torch.randn(12, width)


def losses(model: nn.Module, inputs: list[Tensor], steps: int = 4) -> list[float]:
    """Of a few steps of training, each batch the same."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(*inputs).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
