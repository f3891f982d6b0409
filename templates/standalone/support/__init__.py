"""What only exported files have. Names in this directory take the place of those in templates/support.

What they replace: libraries of packages, PyTorch's operators in place of kernels, answers to tracers, and functions
of torch that not every version has.
"""

from .drawn_seed import draw_seed
from .layers import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Dropout,
    GroupNorm,
    InstanceNorm2d,
    LayerNorm,
    Linear,
    PReLU,
    RMSNorm,
)
from .stand_in import because

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dropout",
    "GroupNorm",
    "InstanceNorm2d",
    "LayerNorm",
    "Linear",
    "PReLU",
    "RMSNorm",
    "because",
    "draw_seed",
]
