"""The parts of a spec, with the values of a graph that its ops take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from fusegen.aten.nodes import shape_of, value_of
from fusegen.plan.programs.modes import PARAMETERS


class NotAChain(Exception):
    """A region that no spec says. Its text is why."""


@dataclass
class Chain:
    """The parts of a spec, and what its ops take in the graph.

    tensors: of the arguments' names the nodes; None where the op takes none.
    channels: the names of those that have channels alone. samples: of those that have one position, or one token for
    all of a sample. numbers: of the arguments' names. results: the nodes whose values others take, and of each its
    place among the op's results. training: whether an operator runs as in training. operands: the names of those of a
    product, which have the dtype of the first input.
    """

    data: dict[str, Any]
    tensors: dict[str, fx.Node | None] = field(default_factory=dict)
    channels: set[str] = field(default_factory=set)
    samples: set[str] = field(default_factory=set)
    numbers: dict[str, float] = field(default_factory=dict)
    results: list[tuple[fx.Node, int]] = field(default_factory=list)
    training: bool = False
    operands: set[str] = field(default_factory=set)

    @property
    def saves_memory(self) -> bool:
        """Whether it is taken for its memory, and may take longer."""
        return "chunk" in self.data["chain"][-1]

    @property
    def mode(self) -> dict[str, str]:
        """The dtypes of the tensors that the chain takes, as a spec's `modes` has them."""
        inputs, found = self.data["inputs"], dict[str, str]()
        for name, node in sorted(self.tensors.items(), key=lambda item: item[0] not in inputs):
            value = value_of(node)
            if value is not None and value.is_floating_point():
                key = name if name in inputs else next(iter(inputs)) if name in self.operands else PARAMETERS
                found.setdefault(key, name_of(value.dtype))
        return found

    @property
    def sizes(self) -> dict[str, int] | None:
        """What `dims` is in this place of the graph, where nothing is made up; None where a size changes from call to
        call. Leading dimensions of rows count as one."""
        symbols, given = next(iter(self.data["inputs"].values())), shape_of(next(iter(self.tensors.values())))
        if len(given) > len(symbols):
            given = (_product(given[: len(given) - len(symbols) + 1]), *given[len(given) - len(symbols) + 1 :])
        found = dict(zip(symbols, given, strict=True))
        dims = {name: found.get(name, size) for name, size in self.data["dims"].items()}
        return dims if all(isinstance(size, int) for size in dims.values()) else None


def _product(sizes: Sequence[int | str]) -> int | str:
    """Text where one of the sizes changes."""
    return math.prod(sizes) if all(isinstance(size, int) for size in sizes) else "*".join(map(str, sizes))


def name_of(dtype: torch.dtype) -> str:
    """The name that a spec has for a dtype."""
    return str(dtype).removeprefix("torch.")
