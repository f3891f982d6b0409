"""A copy for each element of what broadcasts to it: a gradient is then known before it is summed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fusegen.verify.runs.concat_outputs import acts_by_element
from fusegen.verify.runs.run import channel_dim, input_name


def per_element_parameters(
    exact: nn.Module, shape: Sequence[int], dimensions: int, held: set[int]
) -> dict[str, Tensor]:
    """The parameters that no anchor, norm or product holds, one copy per element of the running value, which has so
    many dimensions. shape: of the result. One that has no dimension of channels leaves open where single numbers are
    used: those stay as they are. So does a parameter [channels] of images, which the module views in another shape."""
    if not acts_by_element(exact):
        return {}
    without_channels = len(shape) < dimensions
    if without_channels:
        shape = (*shape[:1], 1, *shape[1:]) if channel_dim(exact) == 1 else (*shape, 1)
    spread = {}
    for name, parameter in exact.named_parameters():
        if id(parameter) in held or (without_channels and parameter.numel() == 1):
            continue
        if channel_dim(exact) == 1 and parameter.dim() == 1 < parameter.numel() and not is_of_prelu(exact, name):
            continue
        values = parameter.detach().reshape(form_of(exact, name, len(shape)))
        # A result of the rows alone is narrower than the value that the parameter meets.
        whole = torch.broadcast_shapes(values.shape, shape)
        copies = values.expand(whole).clone(memory_format=torch.contiguous_format)
        spread[name] = copies.requires_grad_(parameter.requires_grad)
    return spread


def per_element_inputs(exact: nn.Module, inputs: Sequence[Tensor], shape: Sequence[int]) -> dict[str, Tensor]:
    """Further inputs that have one dimension at most, likewise, by the names of their gradients. shape: of the result,
    which has all dimensions of the first input."""
    if not acts_by_element(exact) or len(shape) != inputs[0].dim():
        return {}
    found = {}
    for index, x in enumerate(inputs):
        wide = [size for size in x.shape if size > 1]
        alike = x.dim() == len(shape) or x.dim() < 2 or (channel_dim(exact) == 1 and x.dim() < len(shape))
        fits = all(size in (1, whole) for size, whole in zip(x.shape[::-1], reversed(shape), strict=False))
        if index and x.requires_grad and len(wide) < 2 and alike and fits:
            found[input_name(index)] = x.detach().expand(shape).clone().requires_grad_()
    return found


def form_of(exact: nn.Module, name: str, dimensions: int) -> tuple[int, ...]:
    """The shape in which a parameter broadcasts to the running value: nn.PReLU's has a value for each channel."""
    parameter = exact.get_parameter(name)
    return (parameter.numel(), *(1,) * (dimensions - 2)) if is_of_prelu(exact, name) else tuple(parameter.shape)


def is_of_prelu(exact: nn.Module, name: str) -> bool:
    return isinstance(exact.get_submodule(name.rpartition(".")[0]), nn.PReLU)
