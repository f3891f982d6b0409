"""Linear, scale per channel, batch norm (KernelBench level 2, problem 39), in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

BATCH, IN_FEATURES, OUT_FEATURES = 16384, 4096, 4096


class Model(nn.Module):
    def __init__(
        self, in_features: int, out_features: int, scale_shape: Sequence[int], eps: float = 1e-5, momentum: float = 0.1
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(scale_shape))
        self.bn = nn.BatchNorm1d(out_features, eps=eps, momentum=momentum)

    def forward(self, x: Tensor) -> Tensor:
        x = self.gemm(x)
        x = x * self.scale
        return self.bn(x)


def get_init_inputs() -> list:
    """The constructor's arguments."""
    return [IN_FEATURES, OUT_FEATURES, (OUT_FEATURES,)]


def get_inputs() -> list[Tensor]:
    """An example of what forward takes."""
    return [torch.randn(BATCH, IN_FEATURES)]
