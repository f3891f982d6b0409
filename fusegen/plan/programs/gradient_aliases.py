"""Gradients that have the values of others, so that no kernel has to write them.

The gradient of a residual is the one that comes to the result, and so is that of what it is added to. Autograd passes
the former on, and the matrix product takes the latter as it came. A value and its residual in front of an activation
have one gradient: the kernel writes it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusegen.chain.model import Chain
from fusegen.ir.graph import Node
from fusegen.plan.programs.model import GradientAlias, Mode, Program, Tensor


def with_gradient_aliases(chain: Chain, gradients: Sequence[Tensor], incoming: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of a backward program, each with the tensor whose values it has, if there is one. incoming: the
    gradients of the results. What comes back through windows is not what lies in memory."""
    owners: dict[Node, Tensor] = {each.node: each for each in incoming if each.pool is None}
    found: dict[str, Tensor] = {}
    # The gradient of a product is no result of the op, so that no other can be the same as it.
    product = chain.contraction.result if chain.contraction else ""
    for tensor in sorted(gradients, key=lambda each: each.gradient_of == product):
        if _is_whole(chain, tensor):
            owner = owners.setdefault(tensor.node, tensor)
            if owner is not tensor:
                tensor = replace(tensor, alias_of=GradientAlias(owner.name, owner.role))
        found[tensor.name] = tensor
    return [found[tensor.name] for tensor in gradients]


def _is_whole(chain: Chain, tensor: Tensor) -> bool:
    """Whether it has the shape of the result. A convolution's result may be in another order than the module's."""
    if chain.convolution is not None and tensor.gradient_of == chain.source.name:
        return False
    return tensor.is_full and tensor.part is None and tensor.gradient_of not in chain.compact


def is_written(mode: Mode, tensor: Tensor) -> bool:
    """Whether kernels write a result in this mode."""
    alias = tensor.alias_of
    return alias is None or mode.roles[alias.role] != mode.roles[tensor.role]


def is_launched(mode: Mode, program: Program) -> bool:
    """Whether a program has something to write in this mode."""
    return any(is_written(mode, tensor) for tensor in program.outputs)


def alias_notes(gradients: Sequence[Tensor]) -> list[str]:
    """A note of the plan for each gradient that has the values of another."""
    pairs = [(each.name, each.alias_of.name) for each in gradients if each.alias_of is not None]
    return [f"{name} is {other}, and not written where both have one dtype" for name, other in pairs]
