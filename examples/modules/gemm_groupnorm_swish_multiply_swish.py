"""Linear, group norm, swish, multiply per channel, swish (KernelBench level 2, problem 88), in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

BATCH, IN_FEATURES, OUT_FEATURES, GROUPS = 1024, 8192, 8192, 256


class Model(nn.Module):
    def __init__(
        self, in_features: int, out_features: int, num_groups: int, multiply_weight_shape: Sequence[int]
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.multiply_weight = nn.Parameter(torch.randn(multiply_weight_shape))

    def forward(self, x: Tensor) -> Tensor:
        x = self.gemm(x)
        x = self.group_norm(x)
        x = x * torch.sigmoid(x)
        x = x * self.multiply_weight
        return x * torch.sigmoid(x)


def get_init_inputs() -> list:
    """The constructor's arguments."""
    return [IN_FEATURES, OUT_FEATURES, GROUPS, (OUT_FEATURES,)]


def get_inputs() -> list[Tensor]:
    """An example of what forward takes."""
    return [torch.randn(BATCH, IN_FEATURES)]
