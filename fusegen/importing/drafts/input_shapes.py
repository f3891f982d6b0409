"""The shapes of a spec's inputs, in its symbols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusegen.importing.drafts.symbols import Size, Sizes
from fusegen.importing.reading.shapes import is_one
from fusegen.importing.reading.values import CHANNELS
from fusegen.importing.traces.source_locations import refusal


def input_shapes(inputs: Mapping[str, tuple[Any, ...]], sizes: Sizes) -> dict[str, list[Size]]:
    """inputs: the sizes of each in the trace, the first one in front."""
    first = next(iter(inputs))
    found: dict[str, list[Size]] = {}
    for name, given in inputs.items():
        if name == first:
            found[name] = [*sizes.leading, sizes.of_input(name), *sizes.positions]
        elif name in sizes.targets:
            found[name] = [*sizes.leading]
        elif sizes.labels[name] == ("0",) and not sizes.spread:
            hint = "give it a dimension of 1 behind the rows"
            raise refusal("FG707", f"the input '{name}' has the rows as its last dimension", None, hint)
        elif sizes.spatial:
            found[name] = [sizes.rows, sizes.of_input(name), *sizes.positions_of(name)]
        elif sizes.spread:
            found[name] = _spread(name, given, sizes)
        else:
            found[name] = _further(name, given, inputs[first], sizes)
    return found


def _spread(name: str, given: tuple[Any, ...], sizes: Sizes) -> list[Size]:
    """The shape of an input that may vary over some of the dimensions of rows alone."""
    inner = sizes.of_product(name)
    if inner is not None:
        return [sizes.leading[0], inner, sizes.of_input(name)]
    found: list[Size] = []
    for size, label in zip(given, sizes.labels[name], strict=True):
        if is_one(size) or label is None:
            found.append(1)
        else:
            found.append(sizes.of_input(name) if label == CHANNELS else sizes.leading[int(label)])
    rank = len(sizes.leading) + 1
    aligned = [*sizes.leading, sizes.of_input(name)][rank - len(found) :]
    fits = all(each in (1, own) for each, own in zip(found, aligned, strict=True)) if len(found) <= rank else False
    if not fits and not (len(found) == 2 and found[0] == sizes.leading[0]):
        message = f"the input '{name}' of {len(given)} dimensions does not broadcast to the first one as it is"
        raise refusal("FG707", message, None, "give it the dimensions of 1 that it lacks")
    return found


def _further(name: str, given: tuple[Any, ...], first: tuple[Any, ...], sizes: Sizes) -> list[Size]:
    """The shape of a further input, in which the rows are one dimension."""
    last = [1 if is_one(size) else sizes.of_input(name) for size in given[-1:]]
    if len(given) < 2:
        return last
    if len(given) == len(first) and not all(map(is_one, given[:-1])):
        return [sizes.rows, *last]
    if len(given) == 2:
        return [1, *last]
    message = f"the input '{name}' has {len(given)} dimensions, of which all but the last are 1"
    raise refusal("FG707", message, None, "leave out the dimensions of 1 in front")
