"""The libraries behind PyTorch's operators, as they are set while modules are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def judged_backends() -> Iterator[None]:
    """cuDNN multiplies in full precision, and in a fixed order: what is compared are the kernels. oneDNN does nothing.

    On a processor with AVX2 and without AVX-512, torch 2.13's oneDNN writes beyond its memory in the gradient of the
    weight of a convolution of one position. The process ends there or later. Which layers it happens to, their sizes
    decide, so none is left to it. PyTorch's own loops make the convolutions of a CPU, and products of 16 bits.
    """
    before = torch.backends.mkldnn.set_flags(_enabled=False)[0]
    try:
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before)
