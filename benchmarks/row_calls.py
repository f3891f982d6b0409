"""What the scripts about chains of rows call, and what the rows of their CSVs begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Place:
    """Where a row of a CSV was measured."""

    gpu: str
    torch: str
    chain: str
    precision: str
    size: str


def place_of(chain: str, precision: str, size: tuple[int, ...]) -> tuple[str, str, str, str, str]:
    """The values of a Place on the GPU at hand."""
    return torch.cuda.get_device_name(), torch.__version__, chain, precision, "x".join(map(str, size))


def calls_of(module: nn.Module, x: Tensor, grad: Tensor) -> dict[str, Callable[[], None]]:
    """A forward pass without gradients, and a step: a forward pass and the gradients of the input and of all
    parameters. grad: that of the result."""

    def forward() -> None:
        with torch.no_grad():
            module(x)

    wanted = [x, *module.parameters()]
    return {"forward": forward, "step": lambda: torch.autograd.grad(module(x), wanted, grad) and None}
