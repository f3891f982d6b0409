"""Linear, bias, hardtanh, mish, group norm (KernelBench level 2, problem 94), in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

BATCH, IN_FEATURES, OUT_FEATURES, GROUPS = 1024, 8192, 8192, 256


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int, bias_shape: Sequence[int], num_groups: int) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.hardtanh = nn.Hardtanh()
        self.mish = nn.Mish()
        self.groupnorm = nn.GroupNorm(num_groups=num_groups, num_channels=out_features)

    def forward(self, x: Tensor) -> Tensor:
        x = self.gemm(x)
        x = x + self.bias
        x = self.hardtanh(x)
        x = self.mish(x)
        return self.groupnorm(x)


def get_init_inputs() -> list:
    """The constructor's arguments."""
    return [IN_FEATURES, OUT_FEATURES, (OUT_FEATURES,), GROUPS]


def get_inputs() -> list[Tensor]:
    """An example of what forward takes."""
    return [torch.randn(BATCH, IN_FEATURES)]
