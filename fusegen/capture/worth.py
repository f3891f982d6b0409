"""Which regions are worth a package: where its kernels are faster than what PyTorch's compiler makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx

from fusegen.aten.nodes import shape_of, value_of
from fusegen.capture.layouts import changes_format, is_last
from fusegen.capture.partition import Region

Choose = Literal["faster", "measure", "all"]

# docs/performance.md has norms beside torch.compile: faster in a training step, as fast or slower in a forward pass.
NO_GRADIENT = "no gradient flows through it, and PyTorch's compiler fuses a forward pass as well"
OTHER_FORMAT = "PyTorch's compiler brings images into channels_last here, and the kernels would wait for copies"
PADDED = "PyTorch's compiler has room behind rows of this length, and the kernels would wait for copies without"


@dataclass(frozen=True)
class Around:
    """What holds for all regions of a graph. trained: what with_gradients() returns. pads_rows: whether Inductor has
    the rest. moves_images: whether it would bring contiguous images into channels_last."""

    trained: set[fx.Node]
    pads_rows: bool
    moves_images: bool

    @classmethod
    def of(cls, graph: fx.Graph, inductor: Mapping[str, Any] | None) -> Around:
        """inductor: the options of Inductor; None where the rest is not its."""
        if inductor is None:
            return cls(with_gradients(graph), pads_rows=False, moves_images=False)
        return cls(with_gradients(graph), pads_rows=True, moves_images=changes_format(graph, inductor))


def obstacle(region: Region, around: Around) -> str | None:
    """Why a region's kernels would not be faster. around: of its graph."""
    if not any(node in around.trained for node in region.nodes):
        return NO_GRADIENT
    if around.moves_images and region.frame.form == "images" and not any(map(is_last, region.nodes)):
        return OTHER_FORMAT
    return PADDED if around.pads_rows and _is_padded(region) else None


def is_overruled(why_not: str, choose: Choose) -> bool:
    """Whether a region is tried although its kernels are not expected to be faster. why_not: says the reason. What is
    measured alone has no room behind its rows and no convolution beside it, so that it would seem faster than it is."""
    return choose == "all" or (choose == "measure" and why_not not in (PADDED, OTHER_FORMAT))


def _is_padded(region: Region) -> bool:
    """Whether Inductor gives long rows, of a product say, a stride of whole lines of a cache."""
    from torch._inductor import config

    channels = region.frame.channels
    if region.frame.form != "rows" or not isinstance(channels, int) or channels <= config.padding_stride_threshold:
        return False
    given = {each for node in region.nodes for each in node.all_input_nodes if shape_of(each) == region.frame.sizes}
    values = [value for each in given if (value := value_of(each)) is not None]
    is_on = config.comprehensive_padding
    return is_on and any(channels * value.dtype.itemsize % config.padding_alignment_bytes for value in values)


def with_gradients(graph: fx.Graph) -> set[fx.Node]:
    """The nodes of a graph through which a backward pass runs, where gradients are on or off as they are now."""
    found: set[fx.Node] = set()
    is_on = torch.is_grad_enabled()
    for node in graph.nodes:
        if node.op == "placeholder":
            value = node.meta.get("val")
            is_trained = isinstance(value, Tensor) and value.requires_grad
        elif node.target is torch._C._set_grad_enabled:
            is_on = bool(node.args[0])
            continue
        else:
            is_cut = node.target is torch.ops.aten.detach.default
            is_trained = is_on and not is_cut and any(each in found for each in node.all_input_nodes)
        if is_trained:
            found.add(node)
    return found
