"""The torch ops of packages as PyTorch knows them: their arguments, and what tracers are told."""

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry


def describe(op, fake, flops):
    """Registers what tracers and profilers ask, unless a package of the same sources has."""
    if not torch._C._dispatch_has_kernel_for_dispatch_key(op._schema.name, "Meta"):
        torch.library.register_fake(op, fake)
    flop_registry.setdefault(op.overloadpacket, flops)


def check_devices(op, arguments):
    """One argument on `meta` sends the call here: the values of the others would be lost."""
    first = arguments[0]
    for argument, value in zip(arguments_of(op), arguments, strict=False):
        if isinstance(value, Tensor) and value.device != first.device:
            raise RuntimeError(
                f"{op._schema.name}: {argument.name}: expected device {first.device} as "
                f"{arguments_of(op)[0].name}, got {value.device}"
            )


def arguments_of(op):
    return op._schema.arguments


def named(op, arguments):
    return {
        argument.name: value for argument, value in zip(arguments_of(op), arguments, strict=False)
    }


def is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write
