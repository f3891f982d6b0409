"""Convolutions of 16 bits as CUDA has them, for eager PyTorch on the CPU: the bias is added to a rounded result.

cuDNN rounds the convolution, and PyTorch adds the bias in a pass of its own and rounds again. oneDNN adds it before it
rounds. Where the bias cancels the convolution, what is left of the two has other low bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"})


class CudaConvolution(TorchFunctionMode):
    """While active, a convolution of CPU tensors in 16 bits adds its bias in a second step."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") not in _CONVOLUTIONS or len(args) < 3 or not isinstance(args[2], Tensor):
            return func(*args, **kwargs)
        x, weight, bias, *others = args
        if x.dtype not in (torch.bfloat16, torch.float16):
            return func(*args, **kwargs)
        return func(x, weight, None, *others, **kwargs) + bias.view(-1, *[1] * (weight.dim() - 2))
