"""Norms and losses of a graph that no kernel is generated for, and why."""

from __future__ import annotations

from collections.abc import Iterator

from torch import fx

from fusegen.aten.nodes import operator_of, value_of
from fusegen.capture.losses import is_loss
from fusegen.capture.roles import DTYPES, NORMS, frame_of

_OF_CHANNELS = "a model gets kernels of this norm over the last dimension alone, of a size that does not change"
_KERNELS = {
    "batch_norm": "kernels of this norm have constant channels, momentum and eps, and both running statistics or none",
    "layer_norm": _OF_CHANNELS,
    "rms_norm": _OF_CHANNELS,
    "group_norm": "kernels of this norm have constant channels and groups, and up to three dimensions of positions",
    "instance_norm": "kernels of this norm have constant channels and no running statistics",
    "cross_entropy_loss": "kernels of this loss take logits whose classes are next to each other in memory, and the"
    " numbers of classes",
}


def unsupported(graph: fx.Graph) -> Iterator[tuple[fx.Node, str]]:
    """Each norm and loss without a kernel, and what kernels there are."""
    for node in graph.nodes:
        _, name = operator_of(node)
        if name in _KERNELS and not (name in NORMS and frame_of(node) is not None or is_loss(node)):
            yield node, _reason(node, name)


def _reason(node: fx.Node, name: str) -> str:
    dtype = None if (value := value_of(node.args[0])) is None else value.dtype
    return _KERNELS[name] if dtype in DTYPES else f"there are no kernels for {dtype}"
