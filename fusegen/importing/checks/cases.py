"""What an imported spec is compared at: sizes, inputs of these, and values of arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.importing.drafts.spec_draft import SpecDraft
from fusegen.importing.traces.arguments import Arguments
from fusegen.importing.traces.constructor import alternatives
from fusegen.ir.multiples import factors, value_of


@dataclass(frozen=True)
class Case:
    """Sizes, inputs of these, and the original that is for these."""

    dims: dict[str, int]
    inputs: list[Tensor]
    original: nn.Module


def constructed(spec_draft: SpecDraft, arguments: Arguments, dims: dict[str, int]) -> dict[str, Any]:
    """The values of the spec's arguments, with these sizes."""
    given = arguments.constructor.values if arguments.constructor else {}
    found: dict[str, Any] = {}
    for name, argument in spec_draft.arguments.items():
        if argument["type"] == "dim":
            found[name] = dims[name]
        elif argument["type"] == "shape":
            found[name] = tuple(value_of(size, dims) for size in argument["is"])
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


def resized(example: Tensor, shape: Sequence[int | str], dims: dict[str, int], spec_draft: SpecDraft) -> Tensor:
    """An input of other sizes, of the values of the example."""
    sizes = list(example.shape)
    if spec_draft.spread:
        sizes = [_size_of(new, old, dims, spec_draft) for new, old in zip(shape, sizes, strict=True)]
    elif shape and not example.dtype == torch.int64:
        at = 1 if len(shape) > 2 else -1  # the channels
        sizes[at] = value_of(shape[at], dims)
    if has_rows(shape, spec_draft) and shape[0] in spec_draft.arguments:
        sizes[0] = dims[str(shape[0])]
    for dim in range(example.dim()):
        index = torch.arange(sizes[dim], device=example.device) % example.shape[dim]
        example = example.index_select(dim, index)
    if example.dtype == torch.int64:  # numbers of channels, of which there may be less
        example = torch.where(example < 0, example, example % value_of(_channels_of_loss(spec_draft), dims))
    return example


def _size_of(size: int | str, example: int, dims: dict[str, int], spec_draft: SpecDraft) -> int:
    """Of one dimension: as the example's, unless an argument says it."""
    return value_of(size, dims) if factors(size)[1] in spec_draft.arguments else example


def _channels_of_loss(spec_draft: SpecDraft) -> int | str:
    """Of what a target says the numbers."""
    made = [draft.data["out_features"] for draft in spec_draft.chain if "out_features" in draft.data]
    return made[-1] if made else next(iter(spec_draft.inputs.values()))[-1]


def has_rows(shape: Sequence[int | str], spec_draft: SpecDraft) -> bool:
    """Whether an input of the spec has a value for each row, or more."""
    rows = spec_draft.rows[0]
    return (len(shape) == 2 and shape[0] != 1) or (list(shape) == [rows] and isinstance(rows, str))


def with_rows(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The rows of an input again and again, in these dimensions."""
    behind = x.shape[-1:] if x.dtype != torch.int64 else ()
    rows = x.reshape(-1, *behind)
    count = 1
    for size in shape:
        count *= size
    return rows[torch.arange(count) % len(rows)].reshape(*shape, *behind)


def with_leading(x: Tensor, shape: Sequence[int | str], sizes: Mapping[str, int]) -> Tensor:
    """An input whose dimensions each have a symbol, with other sizes of some of these."""
    for dim, symbol in enumerate(shape):
        if symbol in sizes:
            index = torch.arange(sizes[str(symbol)], device=x.device) % x.shape[dim]
            x = x.index_select(dim, index)
    return x


def alike(original: nn.Module, fused: nn.Module) -> set[str]:
    """The tensors of the original's state that are the other one's too."""
    ours = fused.state_dict()
    theirs = original.state_dict()
    return {name for name, value in theirs.items() if name in ours and torch.equal(ours[name].to(value.dtype), value)}
