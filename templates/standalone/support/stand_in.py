"""What a call checks. What the kernels do not take is an error."""

import torch

from ...support.dimensions import check_inputs
from ...support.stand_in import Eager


def obstacle(owner, inputs, submodules, dimensions=None):
    """Raises ValueError for inputs with dimensions that the chain does not take."""
    check_inputs(owner._fusegen_package.name, dimensions or owner._fusegen_dimensions, inputs)


def because(condition):
    """Under which condition PyTorch refuses a call."""
    return Eager(f"refused, as by PyTorch: {condition}")


ONE_ROW = because("expected more than one row: the variance of one has no meaning")


def tensor(module, name):
    return getattr(module, name, None)


def is_autocast(device):
    return device == "cuda" and torch.is_autocast_enabled()


def autocast_dtype(device):
    newer = getattr(torch, "get_autocast_dtype", None)
    return torch.get_autocast_gpu_dtype() if newer is None else newer(device)
