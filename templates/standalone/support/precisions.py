"""Which float32 products are split, where the spec asks for that.

Each operand as two matrices of fp16, its pieces, whose three products tensor cores make: as
accurate as a product in float32. Elsewhere the product is PyTorch's own.
"""

import torch

from ...support.dimensions import as_rows
from ...support.precisions import FP32_SPLIT, IEEE
from ...support.product_route import is_worth_splitting


def choose_precision(module, x, weight, activation):
    """The number of the precision in which the product of a call is made. x, weight: its operands."""
    if activation != torch.float32 or not weight.shape[1]:
        return IEEE
    return FP32_SPLIT if _is_worth_splitting(module, x, weight) else IEEE


def _is_worth_splitting(module, x, weight):
    """Whether a call is faster so, and its tensors are on a GPU whose kernel makes such products."""
    if module._fusegen_split_always:
        return True
    if not x.is_cuda or not _kernels.can_split(x):  # noqa: F821
        return False
    device = torch.cuda.get_device_properties(x.device)
    with_gradients = torch.is_grad_enabled() or module.training
    return is_worth_splitting(
        (device.major, device.minor),
        device.multi_processor_count,
        x.numel() // x.shape[-1],
        *weight.shape,
        weight_kept=False,
        gradients=with_gradients and (x.requires_grad or weight.requires_grad),
    )


def _with_pieces(module, split, arguments):
    operand, weight = arguments[:2]
    return (*arguments[:-2], split(as_rows(operand).detach()), split(weight.detach()))
