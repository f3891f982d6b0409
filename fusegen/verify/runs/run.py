"""One forward and backward of a module, with everything that it leaves behind.

A module's inputs are a sequence of tensors [rows, features] or, in a chain of images, [batch, channels, *positions],
all on one device. The first one's device and dtype stand for all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.verify.runs.cuda_autocast import CudaAutocast
from fusegen.verify.runs.cuda_convolution import CudaConvolution
from fusegen.verify.runs.dropout_replay import seeded
from fusegen.verify.runs.kinks import Kinks, narrowed

_MARK = "_verify_channel_dim"
# By the number of a tensor's dimensions.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass
class Run:
    """What one forward and backward leave behind. The gradients of inputs are under the keys of `input_name`."""

    output: Tensor
    gradients: dict[str, Tensor | None]
    buffers: dict[str, Tensor]


def input_name(index: int) -> str:
    """What the gradient of an input is called: `input`, then `input 2` and so on."""
    return f"input {index + 1}" if index else "input"


def channel_dim(module: nn.Module) -> int:
    """The dimension of a module's values that are the channels: 1 in a chain of images, else the last."""
    return 1 if hasattr(module, _MARK) or any(map(_has_images, module.modules())) else -1


def mark_images(*modules: nn.Module) -> None:
    """Says that modules take images where their layers may not tell: nn.BatchNorm1d takes rows of channels, too."""
    for module in modules:
        setattr(module, _MARK, 1)


def _has_images(layer: nn.Module) -> bool:
    return isinstance(layer, nn.modules.conv._ConvNd | nn.BatchNorm2d | nn.BatchNorm3d)


def row_count(value: Tensor, channels: int, dimensions: int = 2) -> int:
    """The number of rows of a tensor: one for each combination of the dimensions that are not `channels`.

    dimensions: of the module's inputs. A result that has fewer has none of channels.
    """
    return value.numel() // max(channel_count(value, channels, dimensions), 1) if value.ndim else 1


def channel_count(value: Tensor, channels: int, dimensions: int = 2) -> int:
    return value.shape[channels] if value.ndim >= max(dimensions, 2) else 1


def widest(module: nn.Module, inputs: Sequence[Tensor], result: Tensor) -> int:
    """How many channels the running value has at most: those of the result, unless that has one value a row."""
    dim, dimensions = channel_dim(module), inputs[0].ndim
    channels = channel_count(result, dim, dimensions)
    if channels > 1:
        return channels
    layers = (each for each in module.modules() if isinstance(each, nn.Linear | nn.modules.conv._ConvNd))
    width = channel_count(inputs[0], dim, dimensions)
    return next((each.out_features if isinstance(each, nn.Linear) else each.out_channels for each in layers), width)


def wanting(x: Tensor, want: bool = True) -> Tensor:
    """The tensor, which wants a gradient; what is not floating, as a mask, has none."""
    return x.requires_grad_(want and x.is_floating_point())


def in_double(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs in float64, as leaves that require a gradient where the inputs do; masks as they are."""
    return [wanting(x.detach().double(), x.requires_grad) if x.is_floating_point() else x for x in inputs]


def unequal(x: Tensor) -> Tensor:
    """The values of a tensor, each times a number from 0.5 to 1.5: of ones, no dtype rounds these, nor a sum of not too
    many."""
    return x * ((2 + torch.arange(x.numel(), device=x.device) * 3 % 5) / 4).to(x.dtype).view_as(x)


def drawn_like(x: Tensor) -> Tensor:
    """Random values of the shape and dtype of `x`: normal ones, or for a mask true and false."""
    return torch.randn_like(x) if x.is_floating_point() else torch.rand(x.shape, device=x.device) < 0.5


def has_batch(x: Tensor, first: Tensor) -> bool:
    """Whether an input has the first dimension of the first one."""
    alike = x.dim() == first.dim() or x.dim() == 2 < first.dim()
    return alike and x.shape[0] == first.shape[0]


def leaves(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Tensors that share data and strides with `inputs`, as leaves that require a gradient where the inputs do."""
    return [x.detach().requires_grad_(x.requires_grad) for x in inputs]


def run(
    module: nn.Module,
    inputs: Sequence[Tensor],
    grad_output: Tensor | None,
    *,
    autocast_dtype: torch.dtype | None = None,
    train: bool = True,
) -> Run:
    """One forward and backward that leaves the module as it was: mode, buffers and `.grad` are put back.

    The inputs are used in place, with their strides and their requires_grad; nothing runs backward when nothing wants
    a gradient.
    """
    with undisturbed(module):
        module.train(train)
        given = leaves(inputs)
        with autocast(module, inputs, autocast_dtype), seeded(module, inputs[0]):
            output = module(*given)
        if output.requires_grad and grad_output is not None:
            output.backward(grad_output.to(output.dtype))
        gradients = {input_name(index): leaf.grad for index, leaf in enumerate(given)}
        gradients |= {name: p.grad for name, p in module.named_parameters()}
        buffers = {name: b.clone() for name, b in module.named_buffers()}
    return Run(output.detach(), gradients, buffers)


def runs_in_other_formats(
    module: nn.Module, inputs: Sequence[Tensor], grad_output: Tensor | None, **options: Any
) -> list[Run]:
    """A run with the inputs as `in_other_formats` has them. options: as `run` has them."""
    return [run(module, given, grad_output, **options) for given in in_other_formats(module, inputs)]


def in_other_formats(module: nn.Module, inputs: Sequence[Tensor]) -> list[list[Tensor]]:
    """The inputs of a convolution in channels_last, or contiguous where they are so; none without a convolution that
    PyTorch makes in both formats."""
    last = CHANNELS_LAST.get(inputs[0].dim())
    if last is None or not any(isinstance(each, nn.modules.conv._ConvNd) for each in module.modules()):
        return []
    wanted = torch.contiguous_format if inputs[0].is_contiguous(memory_format=last) else last
    if has_group_norm_of_cpu(module, inputs[0]):
        return []
    return [
        [
            x.detach().clone(memory_format=wanted).requires_grad_(x.requires_grad) if x.dim() == inputs[0].dim() else x
            for x in inputs
        ]
    ]


def has_group_norm_of_cpu(module: nn.Module, x: Tensor) -> bool:
    """Whether a call has a group norm of PyTorch's for CPUs. That keeps channels_last, unlike the one for CUDA, and
    ends with a segmentation fault where images in channels_last want no gradient and its weight does (2.13)."""
    return x.device.type == "cpu" and any(isinstance(each, nn.GroupNorm) for each in module.modules())


def draw_gradient(
    module: nn.Module,
    inputs: Sequence[Tensor],
    *,
    autocast_dtype: torch.dtype | None = None,
    train: bool = True,
    seed: int = 0,
) -> Tensor:
    """A random gradient of the shape and dtype that the module's output has.

    It is zero where the output's side of a kink is a matter of the last bits, see `Kinks`. Of a row that is reduced to
    one value, the whole row counts; where each row has such an element, nothing is set to zero: a comparison of zeros
    would say nothing, and eager has the same sides but for rounding.
    """
    x = inputs[0]
    if x.shape[0] < 2:
        train = False  # the output is of the same kind, and a batch norm accepts a single row
    with (
        torch.no_grad(),
        undisturbed(module),
        autocast(module, inputs, autocast_dtype),
        Kinks(autocast_dtype or x.dtype) as kinks,
    ):
        output = module.train(train)(*inputs)
    generator = torch.Generator(x.device).manual_seed(seed)
    values = torch.randn(output.shape, generator=generator, device=x.device, dtype=torch.float32)
    dim = channel_dim(module)
    near = narrowed(kinks.near, output.shape, dim)
    of_rows = output.ndim < x.ndim or (output.ndim > 1 and output.shape[dim] == 1)
    if near is not None and not (of_rows and near.shape != kinks.near.shape and bool(near.all())):
        values = torch.where(near, 0.0, values)
    return values.to(output.dtype)


@contextlib.contextmanager
def autocast(module: nn.Module, inputs: Sequence[Tensor], dtype: torch.dtype | None) -> Iterator[None]:
    """For a call of the module: autocast to `dtype`, where that is no None, and convolutions as CUDA has both, wherever
    the inputs are. Kernels have the dtypes of CUDA, wherever they run, and would not run below a TorchFunctionMode."""
    device, plain = inputs[0].device.type, not _is_fused(module)
    with contextlib.ExitStack() as stack:
        if device == "cpu" and plain and any(isinstance(each, nn.modules.conv._ConvNd) for each in module.modules()):
            stack.enter_context(CudaConvolution())
        if dtype is not None:
            stack.enter_context(torch.autocast(device, dtype))
            if device == "cpu" and plain:
                stack.enter_context(CudaAutocast(dtype))
        yield


def _is_fused(module: nn.Module) -> bool:
    """Whether kernels run in its forward: the class of an original may be the generated one with another forward."""
    reference = getattr(type(module), "fusegen_reference", None)
    return reference is not None and type(module).forward is not reference


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
