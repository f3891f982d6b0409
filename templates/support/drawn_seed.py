"""The seed of a call with dropout, which a compiled backward pass must not draw again.

Under torch.compile a partitioner decides what the backward pass computes again instead of reading
what the forward pass has saved. With torch._functorch.config.activation_memory_budget below 1, and
in a checkpoint, that may be any op, and a seed that is drawn again is another one. So the op that
draws is marked, in the graph of both passes, as one whose result must be saved: 8 bytes.
"""

from itertools import islice

import torch
from torch.utils.checkpoint import CheckpointPolicy

_MOST = 2**63 - 1
_LEAST_BUDGET = 1e-9  # of what could be saved: nothing is, but for what must be


def draw_seed(device):
    """A seed as a call draws it: an int64 tensor without dimensions."""
    # The flag, since Dynamo takes is_exporting() for true in any trace before torch 2.12.
    if torch.compiler._is_exporting_flag:
        return _draw(device)  # a program without a backward pass
    if torch.compiler.is_compiling():
        return torch.ops.fusegen.draw_seed(torch.empty(0, device=device))
    return _draw_saved(device)


def _draw(device):
    return torch.randint(_MOST, (), dtype=torch.int64, device=device)


def _draw_saved(device):
    """The same; where a graph of both passes is made, its node is marked."""
    if not torch._C._len_torch_dispatch_stack():
        return _draw(device)
    from torch.fx.experimental.proxy_tensor import get_proxy_mode

    mode = get_proxy_mode()
    if mode is None:
        return _draw(device)
    known = len(mode.tracer.graph.nodes)
    seed = _draw(device)
    _mark(mode.tracer.graph, known)
    return seed


def _mark(graph, known):
    """Marks the nodes behind the first `known` ones."""
    from torch._functorch import config
    from torch.fx import traceback

    budget_of_region = getattr(traceback, "_get_memory_budget_annotation", lambda _: None)
    for node in islice(graph.nodes, known, None):
        if budget_of_region(node) == 0:
            raise RuntimeError(
                "region_activation_memory_budget(0) saves nothing, and a dropout's seed must be "
                "saved for the backward pass: use a budget above 0, such as 1e-9"
            )
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    # With a budget of 0 the partitioner looks at no mark. A node's own budget comes before it.
    if config.activation_memory_budget == 0:
        next(iter(graph.nodes)).meta["memory_budget"] = _LEAST_BUDGET


def _register():
    """The op that torch.compile's first trace has, as one that the second traces into.

    Only the second makes nodes that a partitioner sees. The op takes a tensor, so that autograd's
    part of the dispatcher calls it, outside of what a checkpoint does to the nodes of an op.
    """
    if hasattr(torch.ops.fusegen, "draw_seed"):
        return  # of another directory of generated modules
    library = torch.library.Library("fusegen", "FRAGMENT")
    library.define("draw_seed(Tensor like) -> Tensor")
    library.impl("draw_seed", lambda like: _draw_saved(like.device), "CompositeImplicitAutograd")
    _LIBRARIES.append(library)


_LIBRARIES = []  # an op lives as long as its library
_register()
