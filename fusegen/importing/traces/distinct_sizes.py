"""Example inputs of which each size is that of one thing alone: torch.export takes equal sizes for one."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

Places = frozenset[tuple[int, int]]
"""Dimensions that are changed together: the numbers of inputs, and of their dimensions."""


def distinct_sizes(module: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The inputs, with another size in each dimension that has the size of another one, as far as the module runs.

    A dimension is changed by itself, or together with those of the other inputs that are as far from the end, or from
    the beginning. The channels come last: a layer has their number.
    """
    found = list(inputs)
    dims = [(at, dim) for at, x in enumerate(inputs) for dim in (*range(x.dim() - 2, -1, -1), x.dim() - 1)[: x.dim()]]
    module = copy.deepcopy(module).eval()
    for at, dim in dims:
        wanted = next(size for size in itertools.count(found[at].shape[dim] + 1) if not _has(found, size))
        if found[at].shape[dim] > 1 and _is_shared(found, at, dim):
            tried = ([*_changed(found, places, wanted)] for places in _together(found, at, dim))
            found = next((each for each in tried if _runs(module, each)), found)
    return found


def _is_shared(inputs: Sequence[Tensor], at: int, dim: int) -> bool:
    """Whether another dimension has the size, which is not that of the same place in another input: but for the rows of
    a product, which both of its inputs have there."""
    size = inputs[at].shape[dim]
    if _by_end(inputs, at, dim) != _of_size(inputs, size):
        return True
    is_first = at == 0 and dim == inputs[at].dim() - 2 > 0
    return is_first and any(x.dim() == inputs[at].dim() and x.shape[dim] == size for x in inputs[1:])


def _together(inputs: Sequence[Tensor], at: int, dim: int) -> Iterator[Places]:
    """What may have to be changed with a dimension: nothing, or the same place in other inputs."""
    size = inputs[at].shape[dim]
    of_size = _of_size(inputs, size)
    by_beginning = frozenset((index, dim) for index in range(len(inputs)))
    yield from dict.fromkeys((frozenset({(at, dim)}), _by_end(inputs, at, dim), by_beginning & of_size))


def _by_end(inputs: Sequence[Tensor], at: int, dim: int) -> Places:
    behind = inputs[at].dim() - dim
    return frozenset((index, x.dim() - behind) for index, x in enumerate(inputs)) & _of_size(
        inputs, inputs[at].shape[dim]
    )


def _of_size(inputs: Sequence[Tensor], size: int) -> Places:
    return frozenset((index, dim) for index, x in enumerate(inputs) for dim, own in enumerate(x.shape) if own == size)


def _has(inputs: Sequence[Tensor], size: int) -> bool:
    return any(size in x.shape for x in inputs)


def _changed(inputs: Sequence[Tensor], places: Places, wanted: int) -> Iterator[Tensor]:
    for index, x in enumerate(inputs):
        for dim in (dim for other, dim in places if other == index):
            x = x.index_select(dim, torch.arange(wanted, device=x.device) % x.shape[dim])
        yield x


def _runs(module: nn.Module, inputs: Sequence[Tensor]) -> bool:
    try:
        with torch.no_grad():
            module(*(x.clone() for x in inputs))
    except Exception:  # theirs to refuse, which the trace tells of
        return False
    return True
