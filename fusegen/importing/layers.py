"""The convolutions that a call of a module runs, in order, with the positions in front of them and behind."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd


@dataclass(frozen=True)
class Run:
    """One convolution: its path in the module, and the positions of its input and its result."""

    path: str
    before: tuple[int, ...]
    behind: tuple[int, ...]


def runs_of(module: nn.Module, inputs: Sequence[Tensor]) -> list[Run]:
    """All convolutions of a call, each once. The call has tensors without data; where the module does not take these,
    it has the inputs, and ends at the first convolution."""
    if not any(path and isinstance(part, _ConvNd) for path, part in module.named_modules()):
        return []
    memo: dict[int, Any] = {id(each): empty(each) for each in module.parameters()}
    memo |= {id(each): each.detach().to("meta") for each in module.buffers()}
    found = _run(module, memo, [x.detach().to("meta") for x in inputs], most=None)
    return found or _run(module, {}, inputs, most=1)


def empty(parameter: nn.Parameter) -> nn.Parameter:
    """A parameter without data."""
    return nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype, device="meta"), parameter.requires_grad)


class _Stop(Exception):
    """Ends a call."""


def _run(module: nn.Module, memo: dict[int, Any], inputs: Sequence[Tensor], most: int | None) -> list[Run]:
    """The convolutions of a call, up to so many; those before it fails, where it does."""
    found: list[Run] = []

    def note(path: str, given: Any, result: Tensor) -> None:
        if all(path != each.path for each in found):
            found.append(Run(path, tuple(given[0].shape[2:]), tuple(result.shape[2:])))
        if len(found) == most:
            raise _Stop

    try:
        copied = copy.deepcopy(module, memo).eval()
        for path, part in copied.named_modules():
            if path and isinstance(part, _ConvNd):
                part.register_forward_hook(lambda _, given, result, path=path: note(path, given, result))
        with torch.no_grad():
            copied(*inputs)
    except Exception:  # also of the module's own, which the trace tells of
        pass
    return found
