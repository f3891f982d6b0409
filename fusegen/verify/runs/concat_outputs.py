"""Modules of several results as modules of one, so that every check takes them."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def concat_outputs(fused: type[nn.Module]) -> type[nn.Module]:
    """The generated class, whose forward returns its results beside each other as one tensor.

    Where their dtypes differ, the result has the one that they promote to.
    """

    def forward(self: nn.Module, *inputs: Tensor) -> Tensor:
        return _concatenated(fused.forward(self, *inputs))

    def reference(self: nn.Module, *inputs: Tensor) -> Tensor:
        return _concatenated(fused.fusegen_reference(self, *inputs))  # type: ignore[attr-defined]

    name = f"{fused.__name__}Joined"
    more = {"forward": forward, "joined_reference": reference, "is_joined": True, "apart": fused}
    return type(name, (fused,), more)


def _concatenated(results: Sequence[Tensor]) -> Tensor:
    """By their channels where all else is alike; images of several sizes as [batch, elements]."""
    rank = max(each.dim() for each in results)
    largest = next(each for each in results if each.dim() == rank)
    results = [_widened(each, largest) for each in results]
    if len({each.shape[:-1] for each in results}) > 1:
        results = [each.flatten(1) if each.dim() > 1 else each[:, None] for each in results]
    return torch.cat(list(results), dim=-1)


def _widened(result: Tensor, largest: Tensor) -> Tensor:
    """A value of each row as one channel. A loss as one of every row, or of images in their memory format."""
    if not result.dim() and largest.dim() > 2:
        return result + torch.zeros_like(largest, dtype=result.dtype)
    if not result.dim():
        result = result.expand(largest.shape[:-1])
    return result.unsqueeze(-1) if result.shape == largest.shape[:-1] else result


def eager_class(fused: type[nn.Module]) -> type[nn.Module]:
    """The generated class with the chain in PyTorch's operators as its forward; of a joined one joined alike."""
    reference = getattr(fused, "joined_reference", fused.fusegen_reference)  # type: ignore[attr-defined]
    more = {"forward": reference, "fusegen_reference": reference}
    if getattr(fused, "is_joined", False):
        more["apart"] = eager_class(fused.apart)  # type: ignore[attr-defined]
    return type(f"{fused.__name__}Eager", (fused,), more)


def separate_outputs(module: nn.Module) -> nn.Module:
    """A module with the tensors of `module` that returns its results as a tuple, if `module` joins them; else
    `module`."""
    if not getattr(type(module), "is_joined", False):
        return module
    made = copy.copy(module)
    made.__class__ = type(module).apart  # type: ignore[attr-defined]
    return made


class ConcatOutputs(nn.Module):
    """Wraps a module of several results, and returns them as one tensor, as a joined module does."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.apart = module

    def forward(self, *inputs: Tensor) -> Tensor:
        return _concatenated(self.apart(*inputs))


def of_several_widths(original: type[nn.Module]) -> type[nn.Module]:
    """A subclass of `original` that is marked as one whose values have several widths, or several positions."""
    return type(original.__name__, (original,), {"has_several_widths": True})


def acts_by_element(module: nn.Module) -> bool:
    """Whether each parameter of the module's own meets values of the result's shape."""
    kind = type(module)
    marks = ("is_joined", "has_several_widths", "_fusegen_transposed")
    return not any(getattr(kind, each, False) for each in marks) and not hasattr(kind, "_fusegen_chain")
