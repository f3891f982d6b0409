"""The dtype mode of a call: the dtypes in which kernels take its tensors."""

import torch

from .stand_in import Eager, autocast_dtype, is_autocast


def choose_mode(package, device, x, parameter, further, casts):
    """The number of the mode, the dtypes of activations and parameters, whether autocast is on, and
    why there is no kernel, if so.

    device: the type of the inputs'. x: the first input. parameter: a tensor of the module that has
    the dtype of parameters; None: they have that of activations. further: of some further inputs
    the dtypes. casts: whether autocast casts x, as in front of a layer.
    """
    autocast = is_autocast(device)
    activation = x.dtype
    if casts and autocast and activation != torch.float64:
        activation = autocast_dtype(device)
    kept = activation if parameter is None else parameter.dtype
    key = (activation, kept, *further)
    modes = package.autocast_modes if autocast else package.plain_modes
    mode = modes.get(key)
    why = None if mode is not None else _no_mode(modes, key)
    return mode, activation, kept, autocast, why


def _no_mode(modes, key):
    """No kernel was generated for these dtypes of activations, parameters and further inputs."""
    there = "; ".join(sorted(_dtypes_text(each) for each in modes)) or "none"
    return Eager(f"there is no kernel for {_dtypes_text(key)}; the dtypes here are: {there}")


def _dtypes_text(key):
    return " with ".join(str(dtype).removeprefix("torch.") for dtype in key)


def modes_of(dtypes, key, numbers):
    """By the dtypes of the roles in `key`: the mode, of those with these numbers."""
    return {tuple(dtypes[number][role] for role in key): number for number in numbers}
