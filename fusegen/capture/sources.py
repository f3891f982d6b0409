"""Where the inputs of Dynamo's graph come from."""

from __future__ import annotations

from torch import fx
from torch._dynamo.source import ConstantSource

_OF_INPUT = "_dynamo_source"
_OF_PARAMETERS = "_param_name_to_source"


def keep_sources(module: fx.GraphModule, other: fx.GraphModule) -> None:
    """Gives another form of Dynamo's graph, with the same inputs, what Dynamo says of their sources.

    AOTAutograd reads there which inputs are parameters. CUDA graphs copy every input that is none, at each call.
    """
    named = getattr(module, _OF_PARAMETERS, None)
    if named is None:  # no graph of Dynamo's, or a part of one
        return
    for old, new in zip(*(each.graph.find_nodes(op="placeholder") for each in (module, other)), strict=True):
        setattr(new, _OF_INPUT, getattr(old, _OF_INPUT, None))
    held = [
        name
        for named_tensors in (other.named_parameters, other.named_buffers)
        for name, _ in named_tensors(remove_duplicate=False)
    ]
    setattr(other, _OF_PARAMETERS, {name: named.get(name) or ConstantSource(name) for name in held})
