"""The sizes of inputs of images, [batch, channels, positions]: small ones, and what fits a convolution's result."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from fusegen.chain.images import MOST

# A batch of small inputs is at least this, and so are the positions of a convolution's result.
_LEAST = 3
# Positions more than a result sees: arguments are changed, too.
_MORE = 3
# Sizes of positions that are tried.
_MOST = 128


class NoResult(Exception):
    """A convolution has no result for an input of these sizes."""


@dataclass(frozen=True)
class Positions:
    """path: of the convolution in the module; empty where there is none, and a batch norm over positions. spatial: how
    many dimensions of positions it has."""

    path: str
    spatial: int

    @classmethod
    def of(cls, module: nn.Module, inputs: Sequence[Tensor]) -> Positions | None:
        """None for a module that begins with no convolution of a batch, and has no batch norm over positions."""
        path = _first_convolution(module, inputs)
        if path is None:
            rank = inputs[0].dim()
            return cls("", rank - 2) if 3 <= rank <= MOST + 2 and _has_norm(module) else None
        spatial = len(_layer(module, path).kernel_size)
        return cls(path, spatial) if inputs[0].dim() == spatial + 2 else None

    def result(self, module: nn.Module, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the convolution's result for an input of a shape. Raises NoResult where it has none."""
        if not self.path:
            return tuple(shape)
        layer = _layer(module, self.path)
        memo: dict[int, Any] = {id(each): _empty(each) for each in layer.parameters()}
        try:
            return tuple(copy.deepcopy(layer, memo)(torch.empty(tuple(shape), device="meta")).shape)
        except Exception as error:  # PyTorch's, of many kinds
            raise NoResult from error

    def resized(
        self, module: nn.Module, inputs: Sequence[Tensor], batch: int, positions: Sequence[int]
    ) -> list[Tensor]:
        """The inputs with another batch and other positions: the first one of these, others as the result has them."""
        first = inputs[0]
        sizes = (batch, first.shape[1], *positions)
        found, result = [sized(first, sizes)], self.result(module, sizes)
        for x in inputs[1:]:
            if x.dim() != first.dim():
                found.append(x)
                continue
            wanted = (batch, x.shape[1], *result[2:])
            found.append(sized(x, [old if old == 1 else new for old, new in zip(x.shape, wanted, strict=True)]))
        return found

    def fitted(self, module: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The inputs as a module takes them whose convolution has other arguments."""
        return self.resized(module, inputs, inputs[0].shape[0], inputs[0].shape[2:])

    def small(self, module: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Few and different sizes, as torch.export takes equal ones for one; the inputs as they are where the module
        does not take others."""
        state = [*module.parameters(), *module.buffers()]
        taken = {size for x in state for size in x.shape} | {size for x in inputs for size in x.shape[1:2]}
        batch = next(size for size in range(_LEAST, 2**31) if size not in taken)
        taken.add(batch)
        positions = []
        for dim in range(self.spatial):
            size = self._free_size(module, inputs[0].shape[1], dim, taken)
            if size is None:
                return list(inputs)
            positions.append(size)
        try:
            found = self.resized(module, inputs, batch, positions)
            with torch.no_grad():
                copy.deepcopy(module).eval()(*found)
        except Exception:  # theirs to refuse: a tensor that has a value for each position
            return list(inputs)
        return found

    def _free_size(self, module: nn.Module, channels: int, dim: int, taken: set[int]) -> int | None:
        """A size of positions that nothing else has, before the convolution and behind it, which is then taken."""
        extent = 1
        if self.path:
            layer = _layer(module, self.path)
            extent = layer.dilation[dim] * (layer.kernel_size[dim] - 1) + 1
        for size in range(extent + _MORE, extent + _MORE + _MOST):
            try:
                result = self.result(module, (1, channels, *(size,) * self.spatial))[2 + dim]
            except NoResult:
                continue
            if result >= _LEAST and not {size, result} & taken:
                taken |= {size, result}
                return size
        return None


def sized(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """A tensor of other sizes, of the values of this one."""
    for dim, size in enumerate(sizes):
        x = x.index_select(dim, torch.arange(size, device=x.device) % x.shape[dim])
    return x


def _layer(module: nn.Module, path: str) -> Any:
    return module.get_submodule(path)


def _empty(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(torch.empty(parameter.shape, device="meta"))


def _has_norm(module: nn.Module) -> bool:
    """Whether there is a batch norm, and no layer of rows."""
    layers = [each for each in module.modules() if isinstance(each, _BatchNorm | nn.Linear)]
    return bool(layers) and not any(isinstance(each, nn.Linear) for each in layers)


class _Stop(Exception):
    """Ends a call at its first convolution."""


def _first_convolution(module: nn.Module, inputs: Sequence[Tensor]) -> str | None:
    try:
        copied = copy.deepcopy(module).eval()
    except Exception:  # refused later
        return None
    layers = [(path, part) for path, part in copied.named_modules() if path and isinstance(part, _ConvNd)]
    found: list[str] = []

    def stop(path: str) -> None:
        found.append(path)
        raise _Stop

    for path, layer in layers:
        layer.register_forward_pre_hook(lambda *_, path=path: stop(path), prepend=True)
    try:
        if layers:
            with torch.no_grad():
                copied(*inputs)
    except Exception:  # also of the module's own, which the trace tells of
        pass
    return found[0] if found else None
