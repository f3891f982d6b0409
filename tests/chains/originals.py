"""The original eager modules of the chains that fusegen is developed against.

Restated from public KernelBench level 2 problems, but for the last one: same constructor arguments, attribute names,
initialisation order and arithmetic. They are what a generated module has to be exchangeable with, so nothing here uses
fusegen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


class MatmulBnBiasDivSwish(nn.Module):
    """Problem 97."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bn_eps: float = 1e-5,
        bn_momentum: float = 0.1,
        bias_shape: Sequence[int] = (1,),
        divide_value: float = 1.0,
    ) -> None:
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bn = nn.BatchNorm1d(out_features, eps=bn_eps, momentum=bn_momentum)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.divide_value = divide_value

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.matmul(x))
        x = x + self.bias
        x = x / self.divide_value
        return x * torch.sigmoid(x)


class GemmScaleBn(nn.Module):
    """Problems 33 and 39, which differ only in their sizes."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        scale_shape: Sequence[int],
        eps: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(scale_shape))
        self.bn = nn.BatchNorm1d(out_features, eps=eps, momentum=momentum)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(self.gemm(x) * self.scale)


class GemmBiasHardtanhMishGroupnorm(nn.Module):
    """Problem 94."""

    def __init__(self, in_features: int, out_features: int, bias_shape: Sequence[int], num_groups: int) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.hardtanh = nn.Hardtanh()
        self.mish = nn.Mish()
        self.groupnorm = nn.GroupNorm(num_groups=num_groups, num_channels=out_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.groupnorm(self.mish(self.hardtanh(self.gemm(x) + self.bias)))


class GemmGroupnormSwishMultiplySwish(nn.Module):
    """Problem 88."""

    def __init__(
        self, in_features: int, out_features: int, num_groups: int, multiply_weight_shape: Sequence[int]
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.multiply_weight = nn.Parameter(torch.randn(multiply_weight_shape))

    def forward(self, x: Tensor) -> Tensor:
        x = self.group_norm(self.gemm(x))
        x = x * torch.sigmoid(x)
        x = x * self.multiply_weight
        return x * torch.sigmoid(x)


class GemmMultiplyLeakyrelu(nn.Module):
    """Problem 12."""

    def __init__(self, in_features: int, out_features: int, multiplier: float, negative_slope: float) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.multiplier = multiplier
        self.leaky_relu = nn.LeakyReLU(negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        return self.leaky_relu(self.gemm(x) * self.multiplier)


class GemmGroupnormHardtanh(nn.Module):
    """Problem 30."""

    def __init__(
        self, in_features: int, out_features: int, num_groups: int, hardtanh_min: float, hardtanh_max: float
    ) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.group_norm = nn.GroupNorm(num_groups, out_features)
        self.hardtanh = nn.Hardtanh(min_val=hardtanh_min, max_val=hardtanh_max)

    def forward(self, x: Tensor) -> Tensor:
        return self.hardtanh(self.group_norm(self.gemm(x)))


class MatmulSwishSumGroupnorm(nn.Module):
    """Problem 37."""

    def __init__(self, in_features: int, out_features: int, num_groups: int, bias_shape: Sequence[int]) -> None:
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.group_norm = nn.GroupNorm(num_groups, out_features)

    def forward(self, x: Tensor) -> Tensor:
        x = self.matmul(x)
        x = torch.sigmoid(x) * x
        return self.group_norm(x + self.bias)


class GemmBatchnormGeluRelu(nn.Module):
    """Problem 41."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.batch_norm = nn.BatchNorm1d(out_features)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(nn.functional.gelu(self.batch_norm(self.gemm(x))))


class MatmulGroupnormLeakyreluSum(nn.Module):
    """Problem 62."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_groups: int,
        eps: float = 1e-5,
        negative_slope: float = 0.01,
    ) -> None:
        super().__init__()
        self.fc = nn.Linear(input_size, hidden_size)
        self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=hidden_size, eps=eps)
        self.leaky_relu = nn.LeakyReLU(negative_slope=negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        x = self.leaky_relu(self.gn(self.fc(x)))
        return x + x


class MatmulMinSubtract(nn.Module):
    """Problem 68."""

    def __init__(self, in_features: int, out_features: int, constant: float) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.constant = nn.Parameter(torch.tensor(constant))

    def forward(self, x: Tensor) -> Tensor:
        return torch.min(self.linear(x), self.constant) - self.constant


class GemmSigmoidScalingResidualadd(nn.Module):
    """Problem 70."""

    def __init__(self, input_size: int, hidden_size: int, scaling_factor: float) -> None:
        super().__init__()
        self.gemm = nn.Linear(input_size, hidden_size)
        self.scaling_factor = scaling_factor

    def forward(self, x: Tensor) -> Tensor:
        a = self.gemm(x)
        return torch.sigmoid(a) * self.scaling_factor + a


class GemmAddRelu(nn.Module):
    """Problem 76."""

    def __init__(self, in_features: int, out_features: int, bias_shape: Sequence[int]) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.gemm(x) + self.bias)


class LinearLayernormGelu(nn.Module):
    """No problem of that collection, but the commonest of such chains."""

    def __init__(self, in_features: int, out_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.LayerNorm(out_features, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(self.norm(self.linear(x)))


@dataclass(frozen=True)
class Chain:
    """One chain: its spec, its original, and how to construct both at any size."""

    spec: str
    module: type[nn.Module]
    full: tuple[int, int, int, int]  # rows, input features, output features, groups (1 where the chain has none)
    arguments: Callable[[int, int, int], tuple]  # (input features, output features, groups) -> constructor arguments

    @property
    def full_arguments(self) -> tuple:
        """The constructor's arguments at the benchmark's size."""
        return self.arguments(*self.full[1:])

    @property
    def input_shape(self) -> tuple[int, int]:
        """The input's shape at the benchmark's size."""
        return self.full[:2]

    @property
    def has_batch_norm(self) -> bool:
        """Whether one row is refused in training, as nn.BatchNorm1d does."""
        return self.module in (MatmulBnBiasDivSwish, GemmScaleBn, GemmBatchnormGeluRelu)


LARGE = (1024, 8192, 8192)

_ALL = (
    Chain("matmul_bn_bias_div_swish", MatmulBnBiasDivSwish, (*LARGE, 1), lambda k, n, g: (k, n)),
    Chain("gemm_scale_bn", GemmScaleBn, (*LARGE, 1), lambda k, n, g: (k, n, (n,))),
    Chain("gemm_scale_bn_4096", GemmScaleBn, (16384, 4096, 4096, 1), lambda k, n, g: (k, n, (n,))),
    Chain(
        "gemm_bias_hardtanh_mish_groupnorm",
        GemmBiasHardtanhMishGroupnorm,
        (*LARGE, 256),
        lambda k, n, g: (k, n, (n,), g),
    ),
    Chain(
        "gemm_groupnorm_swish_multiply_swish",
        GemmGroupnormSwishMultiplySwish,
        (*LARGE, 256),
        lambda k, n, g: (k, n, g, (n,)),
    ),
    Chain("gemm_multiply_leakyrelu", GemmMultiplyLeakyrelu, (*LARGE, 1), lambda k, n, g: (k, n, 2.0, 0.1)),
    Chain("gemm_groupnorm_hardtanh", GemmGroupnormHardtanh, (*LARGE, 16), lambda k, n, g: (k, n, g, -2.0, 2.0)),
    Chain(
        "matmul_swish_sum_groupnorm",
        MatmulSwishSumGroupnorm,
        (32768, 1024, 4096, 64),
        lambda k, n, g: (k, n, g, (n,)),
    ),
    Chain("gemm_batchnorm_gelu_relu", GemmBatchnormGeluRelu, (16384, 4096, 4096, 1), lambda k, n, g: (k, n)),
    Chain(
        "matmul_groupnorm_leakyrelu_sum",
        MatmulGroupnormLeakyreluSum,
        (*LARGE, 512),
        lambda k, n, g: (k, n, g),
    ),
    Chain("matmul_min_subtract", MatmulMinSubtract, (128, 16384, 16384, 1), lambda k, n, g: (k, n, 2.0)),
    Chain(
        "gemm_sigmoid_scaling_residualadd",
        GemmSigmoidScalingResidualadd,
        (*LARGE, 1),
        lambda k, n, g: (k, n, 2.0),
    ),
    Chain("gemm_add_relu", GemmAddRelu, (*LARGE, 1), lambda k, n, g: (k, n, (n,))),
    Chain("linear_layernorm_gelu", LinearLayernormGelu, (4096, 4096, 4096, 1), lambda k, n, g: (k, n)),
)
CHAINS: dict[str, Chain] = {chain.spec: chain for chain in _ALL}

SEEDS = (
    "matmul_bn_bias_div_swish",
    "gemm_scale_bn",
    "gemm_scale_bn_4096",
    "gemm_bias_hardtanh_mish_groupnorm",
    "gemm_groupnorm_swish_multiply_swish",
)
