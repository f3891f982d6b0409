"""What a user could run instead of the fused module: the original chain, eager or through torch.compile."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from fusegen.bench.names import GRAPH_PEERS

# The arguments of torch.compile; eager has none.
_OPTIONS: dict[str, Mapping[str, Any] | None] = {
    "eager": None,
    "compile": {},
    "reduce-overhead": {"mode": "reduce-overhead"},
    "max-autotune": {"mode": "max-autotune-no-cudagraphs"},
}


def is_compiled(name: str) -> bool:
    """Whether making this peer takes torch.compile, and so seconds to minutes."""
    return _OPTIONS[name] is not None


def uses_graphs(name: str) -> bool:
    """Whether this peer replays CUDA graphs."""
    return name in GRAPH_PEERS


def make_peer(name: str, original: nn.Module, backend: str | None = None) -> nn.Module:
    """The peer, which compiles at its first call. It has its own parameters, except for eager, which is the original.

    backend: another one than Inductor, where there is no GPU.
    """
    options = _OPTIONS[name]
    if options is None:
        return original
    arguments = options if backend is None else {"backend": backend}
    # Without fullgraph a chain that breaks the graph would be timed as eager, unnoticed.
    return torch.compile(copy.deepcopy(original), dynamic=False, fullgraph=True, **arguments)  # type: ignore[return-value]


@contextlib.contextmanager
def compiling(names: Iterable[str]) -> Iterator[None]:
    """Nothing compiled before and after; room for every peer of `names`, which all compile the same function."""
    if not any(map(is_compiled, names)):
        yield  # torch.compile takes seconds to import
        return
    torch._dynamo.reset()
    try:
        with torch._dynamo.config.patch(recompile_limit=64):
            yield
    finally:
        torch._dynamo.reset()
