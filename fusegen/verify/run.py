"""One forward and backward of a module, with everything that it leaves behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fusegen.verify.kinks import Kinks


@dataclass
class Run:
    """What one forward and backward leave behind. The gradient of the input is under the key `input`."""

    output: Tensor
    gradients: dict[str, Tensor | None]
    buffers: dict[str, Tensor]


def run(
    module: nn.Module,
    x: Tensor,
    grad_output: Tensor | None,
    *,
    autocast_dtype: torch.dtype | None = None,
    train: bool = True,
) -> Run:
    """One forward and backward that leaves the module as it was: mode, buffers and `.grad` are put back.

    `x` is used in place, with its strides and its requires_grad; nothing runs backward when nothing wants a
    gradient.
    """
    with undisturbed(module):
        module.train(train)
        leaf = x.detach().requires_grad_(x.requires_grad)
        with autocast(x, autocast_dtype):
            output = module(leaf)
        if output.requires_grad and grad_output is not None:
            output.backward(grad_output.to(output.dtype))
        gradients = {"input": leaf.grad} | {name: p.grad for name, p in module.named_parameters()}
        buffers = {name: b.clone() for name, b in module.named_buffers()}
    return Run(output.detach(), gradients, buffers)


def draw_gradient(
    module: nn.Module,
    x: Tensor,
    *,
    autocast_dtype: torch.dtype | None = None,
    train: bool = True,
    seed: int = 0,
) -> Tensor:
    """A random gradient of the shape and dtype that the module's output has.

    In float32 it is zero where the output's side of a kink is a matter of the last bit, see `Kinks`.
    Coarser dtypes fall on the wrong side so often that eager's error speaks for it.
    """
    if x.shape[0] < 2:
        train = False  # the output is of the same kind, and a batch norm accepts a single row
    with torch.no_grad(), undisturbed(module), autocast(x, autocast_dtype), Kinks() as kinks:
        output = module.train(train)(x)
    generator = torch.Generator(x.device).manual_seed(seed)
    values = torch.randn(output.shape, generator=generator, device=x.device, dtype=torch.float32)
    if x.dtype == torch.float32 and autocast_dtype is None and kinks.near is not None:
        values = torch.where(kinks.near, 0.0, values)
    return values.to(output.dtype)


def autocast(x: Tensor, dtype: torch.dtype | None) -> contextlib.AbstractContextManager:
    """Autocast to `dtype` on the input's kind of device; nothing where `dtype` is None."""
    if dtype is None:
        return contextlib.nullcontext()
    return torch.autocast(x.device.type, dtype)


@contextlib.contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Put mode, buffers and `.grad` back at the end; `.grad` is empty inside."""
    modes = [(m, m.training) for m in module.modules()]
    buffers = [(b, b.clone()) for b in module.buffers()]
    gradients = [(p, p.grad) for p in module.parameters()]
    for p, _ in gradients:
        p.grad = None
    try:
        yield
    finally:
        for m, training in modes:
            m.training = training
        with torch.no_grad():
            for b, value in buffers:
                b.copy_(value)
        for p, gradient in gradients:
            p.grad = gradient
