"""What Inductor has to know of the ops of packages."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch._library.utils import get_layout_constraint_tag
from torch._ops import OpOverload
from torch.torch_version import TorchVersion

_NAMESPACE = "fusegen"


def announce_ops() -> None:
    """Tells Inductor of the ops of all packages that are loaded, as it does itself where it comes to an op that it does
    not know.

    Before torch 2.13 it writes out all that such an op is made of, for a message that nobody reads. Where residual
    blocks follow each other that is twice as much for each: at the end of the 12 blocks of a ViT it takes hours.
    """
    if TorchVersion(torch.__version__) < "2.13":
        from torch._inductor.lowering import lowerings, make_fallback, tag_to_layout_constraint

        for op in ops():
            if op not in lowerings:
                tag = get_layout_constraint_tag(op, with_default=True)
                make_fallback(op, layout_constraint=tag_to_layout_constraint(tag))


def ops() -> Iterator[OpOverload]:
    """The ops of all packages that are loaded, but those that are traced into: Inductor does not meet them."""
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, function = name.partition("::")
        is_traced = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        if namespace == _NAMESPACE and not is_traced:
            yield getattr(getattr(torch.ops, namespace), function).default
