"""The layers of a call that may have other positions behind them, in order: convolutions, pooling, upsampling."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from fusegen.ops.upsampling import DIMENSIONS

_POOLING = {
    getattr(nn, f"{kind}Pool{n}d"): n
    for kind in ("Max", "Avg", "LP", "AdaptiveAvg", "AdaptiveMax")
    for n in (1, 2, 3)
    if hasattr(nn, f"{kind}Pool{n}d")
}
_SHUFFLES = (nn.PixelShuffle, nn.PixelUnshuffle)


def changes_positions(layer: nn.Module | None) -> bool:
    """Whether a layer's result may have other positions than its input."""
    return isinstance(layer, nn.Upsample) or dimensions_of(layer) > 0


def dimensions_of(layer: nn.Module | None) -> int:
    """How many dimensions of positions a layer of these kinds takes; 0 of another module, and where it takes any."""
    if isinstance(layer, _ConvNd):
        return len(layer.kernel_size)
    if isinstance(layer, nn.Upsample):
        return DIMENSIONS.get(layer.mode, 0)
    if isinstance(layer, _SHUFFLES):
        return 2
    return next((count for kind, count in _POOLING.items() if isinstance(layer, kind)), 0)


def is_adaptive(layer: nn.Module) -> bool:
    """Whether the positions of a layer's result are the same for all of its input."""
    if isinstance(layer, nn.Upsample):
        return layer.size is not None
    return "Adaptive" in next((kind.__name__ for kind in _POOLING if isinstance(layer, kind)), "")


@dataclass(frozen=True)
class Run:
    """One layer: its path in the module, and the positions of its input and its result."""

    path: str
    before: tuple[int, ...]
    behind: tuple[int, ...]


def runs_of(module: nn.Module, inputs: Sequence[Tensor]) -> list[Run]:
    """All layers of these kinds in a call, each once. The call has tensors without data; where the module
    does not take these, it has the inputs, and ends at the first layer."""
    if not any(path and changes_positions(part) for path, part in module.named_modules()):
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
    """The layers of a call, up to so many; those before it fails, where it does."""
    found: list[Run] = []

    def note(path: str, given: Any, result: Tensor) -> None:
        if all(path != each.path for each in found):
            found.append(Run(path, tuple(given[0].shape[2:]), tuple(result.shape[2:])))
        if len(found) == most:
            raise _Stop

    try:
        copied = copy.deepcopy(module, memo).eval()
        for path, part in copied.named_modules():
            if path and changes_positions(part):
                part.register_forward_hook(lambda _, given, result, path=path: note(path, given, result))
        with torch.no_grad():
            copied(*inputs)
    except Exception:  # also of the module's own, which the trace tells of
        pass
    return found
