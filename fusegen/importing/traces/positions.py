"""The sizes of inputs of images, [batch, channels, positions]: small ones, and what fits a convolution's result."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fusegen.aten import table as aten
from fusegen.chain.images import MOST
from fusegen.importing.traces.convolution_runs import dimensions_of, empty, is_adaptive, runs_of

# A batch of small inputs is at least this, and so are the positions of a convolution's result.
_LEAST = 3
# Positions more than a result sees: arguments are changed, too.
_MORE = 3
# Sizes of positions that are tried.
_MOST = 128
# Of positions: those of the first input, and those of no known value.
AT_FIRST, NOWHERE = 0, -1


@dataclass(frozen=True)
class Layer:
    """A convolution, pooling or upsampling layer. source: whose positions its input has, as Positions.further."""

    path: str
    source: int


class NoResult(Exception):
    """A layer has no result for an input of these sizes."""


@dataclass(frozen=True)
class Positions:
    """spatial: how many dimensions of positions the first input has. layers: those with other positions behind them, in
    the order of a call; empty where there is a batch norm over positions alone. further: of each further input, which
    layer's result has its positions, counted from 1: AT_FIRST if the first input has, NOWHERE if nothing has."""

    spatial: int
    layers: tuple[Layer, ...] = ()
    further: tuple[int, ...] = ()

    @classmethod
    def of(cls, module: nn.Module, inputs: Sequence[Tensor]) -> Positions | None:
        """None for a module that has no convolution of a batch, and nothing else that has channels as dimension 1."""
        rank = inputs[0].dim()
        runs = runs_of(module, inputs)
        if not runs:
            return cls(rank - 2) if 3 <= rank <= MOST + 2 and _are_images(module, inputs) else None
        spatial = dimensions_of(module.get_submodule(runs[0].path)) or rank - 2
        if rank != spatial + 2:
            return None
        layers, sizes = [], [tuple(inputs[0].shape[2:])]
        for run in runs:
            if len(run.before) != spatial:
                continue  # of the features of rows, which are no positions
            layers.append(Layer(run.path, _place(sizes, run.before)))
            sizes.append(run.behind)
        return cls(spatial, tuple(layers), tuple(_place(sizes, x.shape[2:]) for x in inputs[1:]))

    def behind(self, module: nn.Module, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        """The positions of each convolution's result for the first input's. Raises NoResult where one has none."""
        found = [tuple(sizes)]
        for layer in self.layers:
            if layer.source == NOWHERE:
                raise NoResult
            found.append(_result(module.get_submodule(layer.path), found[layer.source]))
        return found[1:]

    def resized(
        self, module: nn.Module, inputs: Sequence[Tensor], batch: int, positions: Sequence[int]
    ) -> list[Tensor]:
        """The inputs with another batch and other positions: the first one of these, others as layers make them."""
        first = inputs[0]
        found = [sized(first, (batch, first.shape[1], *positions))]
        behind = [tuple(positions), *self.behind(module, positions)]
        places = self.further or (AT_FIRST,) * len(inputs[1:])
        for x, place in zip(inputs[1:], places, strict=True):
            if x.dim() != first.dim():
                of_batch = x.shape[:1] == first.shape[:1] and x.dim() < 3
                found.append(sized(x, (batch, *x.shape[1:])) if of_batch else x)
                continue
            wanted = (batch, x.shape[1], *(x.shape[2:] if place == NOWHERE else behind[place]))
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
        own = tuple(inputs[0].shape[2:])
        positions = []
        for dim in range(self.spatial):
            size = self._free_size(module, dim, taken)
            if size is None:
                return list(inputs)
            positions.append(size)
        # A norm over positions has their number: as many dimensions as can be have others.
        choices = itertools.product(*zip(positions, own, strict=True))
        for chosen in sorted(choices, key=lambda sizes: sum(map(int.__eq__, sizes, own))):
            try:
                found = self.resized(module, inputs, batch, chosen)
                with torch.no_grad():
                    copy.deepcopy(module).eval()(*found)
            except Exception:  # theirs to refuse: a tensor that has a value for each position
                continue
            return found
        return list(inputs)

    def _free_size(self, module: nn.Module, dim: int, taken: set[int]) -> int | None:
        """A size of positions that nothing else has, before the convolution and behind it, which is then taken."""
        layers = [module.get_submodule(layer.path) for layer in self.layers]
        extent = _extent(layers[0], dim) if layers else 1
        for size in range(extent + _MORE, extent + _MORE + _MOST):
            try:
                behind = self.behind(module, (size,) * self.spatial)
                results = {each[dim] for each, layer in zip(behind, layers, strict=True) if not is_adaptive(layer)}
            except NoResult:
                continue
            if min(results, default=size) >= _LEAST and not {size, *results} & taken:
                taken |= {size, *results}
                return size
        return None


def sized(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """A tensor of other sizes, of the values of this one."""
    for dim, size in enumerate(sizes):
        x = x.index_select(dim, torch.arange(size, device=x.device) % x.shape[dim])
    return x


def _place(known: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> int:
    """Which of the sizes that there were these are, the last one of several."""
    return next((at for at in range(len(known) - 1, -1, -1) if known[at] == tuple(sizes)), NOWHERE)


def _result(layer: Any, positions: Sequence[int]) -> tuple[int, ...]:
    memo: dict[int, Any] = {id(each): empty(each) for each in layer.parameters()}
    channels = getattr(layer, "in_channels", getattr(layer, "upscale_factor", 1) ** 2)
    x = torch.empty((1, channels, *positions), device="meta")
    try:
        return tuple(copy.deepcopy(layer, memo)(x).shape[2:])
    except Exception as error:  # PyTorch's, of many kinds
        raise NoResult from error


def _extent(layer: Any, dim: int) -> int:
    """How many positions a result of a layer sees in one dimension."""
    kernel, dilation = getattr(layer, "kernel_size", 1), getattr(layer, "dilation", 1)
    kernel, dilation = (each[dim] if isinstance(each, tuple) else each for each in (kernel, dilation))
    return dilation * (kernel - 1) + 1


def _are_images(module: nn.Module, inputs: Sequence[Tensor]) -> bool:
    """Whether the values of a module without convolutions and pooling are images: a norm takes them so, or something is
    over another dimension than the last, where no layer takes that one as the channels."""
    if any(isinstance(each, nn.PReLU) and each.num_parameters > 1 for each in module.modules()):
        return True
    copied = copy.deepcopy(module).eval()
    ranks: list[int] = []
    seen = _Dimensions(inputs[0].dim())
    for part in copied.modules():
        if isinstance(part, nn.Linear):
            part.register_forward_pre_hook(lambda _, given: ranks.append(given[0].dim()))
        if isinstance(part, nn.RMSNorm):  # whose mean is over the last dimensions
            part.register_forward_pre_hook(lambda *_: seen.look(False))
            part.register_forward_hook(lambda *_: seen.look(True))
    with seen, torch.no_grad():
        try:
            copied(*inputs)
        except Exception:  # theirs to refuse
            return False
    is_of_rows = max(ranks, default=2) > 2
    return not is_of_rows and (seen.has_norm or not seen.found <= {seen.rank - 1})


class _Dimensions(TorchDispatchMode):
    """Notes the dimensions that softmax, reductions, cat and such take, of tensors of a rank, and norms of these."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.has_norm = False
        self.found: set[int] = set()
        self._looks = True

    def look(self, whether: bool) -> None:
        self._looks = whether

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = aten.names(func)[1]
        if name in aten.JOINED:
            self.found |= {(*args, 0)[1] % self.rank for each in args[0] if each.dim() == self.rank}
        is_alike = self._looks and isinstance(args[:1] and args[0], Tensor) and args[0].dim() == self.rank
        self.has_norm |= is_alike and ("batch_norm" in name or "group_norm" in name)
        if is_alike and not {*aten.names(func)}.isdisjoint(aten.OVER_CHANNELS):
            dims = aten.dimensions(func, args, kwargs or {}) or []
            self.found |= {dim % self.rank for dim in dims if isinstance(dim, int)}
        return func(*args, **(kwargs or {}))
