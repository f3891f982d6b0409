"""Graphs of models as the backend sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from fusegen.capture.lower import lower


def lowered(call: Callable[..., Any], *inputs: torch.Tensor, dynamic: bool | None = None) -> fx.GraphModule:
    """The graph of a call, which Dynamo has in one."""
    found: list[fx.GraphModule] = []

    def backend(module: fx.GraphModule, _: Any) -> Callable[..., Any]:
        found.append(lower(module))
        return module.forward

    torch._dynamo.reset()
    torch.compile(call, backend=backend, fullgraph=True, dynamic=dynamic)(*inputs)
    torch._dynamo.reset()
    (graph,) = found
    return graph


def of_lowered(call: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """The result of a call whose graphs run as they are lowered."""
    torch._dynamo.reset()
    result = torch.compile(call, backend=lambda module, _: lower(module))(*inputs)
    torch._dynamo.reset()
    return result
