"""What an imported spec is compared at: sizes, inputs of these, and values of arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.importing.arguments import Arguments
from fusegen.importing.constructor import alternatives
from fusegen.importing.draft import Sheet


@dataclass(frozen=True)
class Case:
    """Sizes, inputs of these, and the original that is for these."""

    dims: dict[str, int]
    inputs: list[Tensor]
    original: nn.Module


def constructed(sheet: Sheet, arguments: Arguments, dims: dict[str, int]) -> dict[str, Any]:
    """The values of the spec's arguments, with these sizes."""
    given = arguments.constructor.values if arguments.constructor else {}
    found: dict[str, Any] = {}
    for name, argument in sheet.arguments.items():
        if argument["type"] == "dim":
            found[name] = dims[name]
        elif argument["type"] == "shape":
            found[name] = tuple(dims.get(size, size) for size in argument["is"])
        else:
            found[name] = given[name] if name in given else argument["default"]
    return found


def others(value: float, is_whole: bool, least: int | None = None) -> Iterator[float]:
    """Other values of a number, far from it too. least: that an option of a convolution
    may be, which takes long for large ones."""
    if least is not None:
        near = (value + 1, value - 1, value + 2, value * 2, value * 4, value // 2)
        yield from (each for each in dict.fromkeys(near) if each >= least and each != value)
        return
    found = [each for group in alternatives(int(value) if is_whole else float(value)) for each in group]
    if not is_whole:
        found = [found[0], -value, value * 100, *found[1:], 0.0, value / 100]
    yield from (each for each in dict.fromkeys(found) if each != value)


def resized(example: Tensor, shape: Sequence[int | str], dims: dict[str, int], sheet: Sheet) -> Tensor:
    """An input of other sizes, of the values of the example."""
    sizes = list(example.shape)
    if shape:
        at = 1 if len(shape) > 2 else -1  # the channels
        sizes[at] = int(dims.get(str(shape[at]), shape[at]))
    if has_rows(shape) and shape[0] in sheet.arguments:
        sizes[0] = dims[str(shape[0])]
    for dim in range(example.dim()):
        index = torch.arange(sizes[dim], device=example.device) % example.shape[dim]
        example = example.index_select(dim, index)
    return example


def has_rows(shape: Sequence[int | str]) -> bool:
    """Whether an input of the spec has a value for each row, or more."""
    return len(shape) == 2 and shape[0] != 1


def with_rows(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The rows of an input again and again, in these dimensions."""
    rows = x.reshape(-1, x.shape[-1])
    count = 1
    for size in shape:
        count *= size
    return rows[torch.arange(count) % len(rows)].reshape(*shape, x.shape[-1])


def alike(original: nn.Module, fused: nn.Module) -> set[str]:
    """The tensors of the original's state that are the other one's too."""
    ours = fused.state_dict()
    theirs = original.state_dict()
    return {name for name, value in theirs.items() if name in ours and torch.equal(ours[name].to(value.dtype), value)}
