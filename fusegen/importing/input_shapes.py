"""The shapes of a spec's inputs, in its symbols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusegen.importing.places import refusal
from fusegen.importing.shapes import is_one
from fusegen.importing.symbols import Size, Sizes


def input_shapes(inputs: Mapping[str, tuple[Any, ...]], sizes: Sizes) -> dict[str, list[Size]]:
    """inputs: the sizes of each in the trace, the first one in front."""
    first = next(iter(inputs))
    found: dict[str, list[Size]] = {}
    for name, given in inputs.items():
        if name == first:
            found[name] = [sizes.rows, sizes.of_input(name), *sizes.positions]
        elif sizes.spatial:
            found[name] = [sizes.rows, sizes.of_input(name), *sizes.of_result]
        else:
            found[name] = _further(name, given, inputs[first], sizes)
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
