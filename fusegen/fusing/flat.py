"""A copy of a module whose inner layers are attributes of its own, as the module of a spec has them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from torch import nn

from fusegen.importing.module import snake_case

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Run(nn.Module):
    """Consecutive children of an nn.Sequential, under the names of their layers."""

    def __init__(self, children: Iterable[nn.Module]) -> None:
        super().__init__()
        for child in children:
            self.add_module(_new_name(snake_case(type(child).__name__), self), child)

    def forward(self, x: Any) -> Any:
        for child in list(self._modules.values()):
            x = child(x)  # type: ignore[misc]
        return x


def flat(module: nn.Module) -> tuple[nn.Module, dict[str, str]]:
    """A copy on the CPU, without hooks of its own; and for each of its submodules the path of the module's.

    `net.0` becomes `net_0`. What held it computes as before, but is no submodule any more.
    """
    made = copy.deepcopy(module).cpu()
    for hooks in _HOOKS:
        vars(made)[hooks] = type(vars(made)[hooks])()
    paths: dict[str, str] = {}
    for name, child in list(made._modules.items()):
        if child is not None and _is_nested(child):
            del made._modules[name]
            vars(made)[name] = child
            _raise(made, child, name, paths)
        else:
            paths[name] = name
    return made, paths


def _raise(made: nn.Module, holder: nn.Module, path: str, paths: dict[str, str]) -> None:
    """Makes the children of a holder submodules of the copy."""
    for name, child in list(holder._modules.items()):
        if child is None:
            continue
        if _is_nested(child):
            _raise(made, child, f"{path}.{name}", paths)
        else:
            own = _new_name(f"{path}.{name}".replace(".", "_"), made)
            made._modules[own] = child
            paths[own] = f"{path}.{name}"
    # Not nn.Module's call: a tracer that sees it asks for the path of the holder.
    holder.__class__ = type(type(holder).__name__, (type(holder),), {"__call__": _call})


def _call(holder: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return holder.forward(*args, **kwargs)


def _is_nested(module: nn.Module) -> bool:
    """Whether its tensors, some of them, are those of submodules, and none its own."""
    own = [*module._parameters.values(), *module._buffers.values()]
    return not any(tensor is not None for tensor in own) and bool(module._modules) and bool(module.state_dict())


def _new_name(wanted: str, module: nn.Module) -> str:
    number, name = 1, wanted
    while hasattr(module, name):
        number += 1
        name = f"{wanted}_{number}"
    return name
