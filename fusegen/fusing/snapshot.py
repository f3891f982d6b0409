"""What a module was when it was replaced: its parts, their types and their plain attributes.

A chain has the numbers of these as constants. So a call looks whether they still are what they were.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
from torch import nn

_PLAIN = (bool, int, float, str, type(None), torch.dtype, types.FunctionType, types.BuiltinFunctionType)
# PyTorch's own that may be in a mode of their own: the kernels ask them.
_WITH_MODES = (nn.BatchNorm1d,)


class Snapshot(NamedTuple):
    """Of a module. values: its plain attributes. parts: of its submodules, by name. count: of all submodules."""

    kind: type[nn.Module]
    forward: Any
    values: tuple[tuple[str, Any], ...]
    parts: tuple[tuple[str, Snapshot], ...]
    count: int


def snapshot(module: nn.Module, names: Collection[str] | None = None) -> Snapshot:
    """names: of the submodules that matter; None for all."""
    own = vars(module)
    values = {name: value for name, value in own.items() if not name.startswith("_") and name != "training"}
    kept = tuple((name, copy.deepcopy(value)) for name, value in values.items() if _is_plain(value))
    chosen = module._modules if names is None else {name: module._modules[name] for name in names}
    parts = tuple((name, snapshot(part)) for name, part in chosen.items() if part is not None)
    return Snapshot(type(module), type(module).forward, kept, parts, len(module._modules))


def changed(module: nn.Module, known: Snapshot, path: str, training: bool, *, is_root: bool = False) -> str | None:
    """What has changed since, in words; None if nothing has. training: the mode of all parts.

    is_root: it is the module that was replaced, whose hooks run as before.
    """
    own = module.__dict__
    if not is_root:
        if type(module) is not known.kind:
            return f"{path} is of type {type(module).__name__} now, not {known.kind.__name__}"
        why = interference(module)
        if why:
            return f"{path} {why}"
        if own["training"] is not training and known.kind not in _WITH_MODES:
            return f"{path} is in another mode than the module that holds it"
    if known.kind.forward is not known.forward:
        return f"{known.kind.__name__}.forward was replaced"
    for name, value in known.values:
        if own.get(name) != value:
            return f"{path}{'.' if path else ''}{name} is not {value!r} any more"
    modules = own["_modules"]
    if len(modules) != known.count:
        return f"{path or 'the module'} has other submodules now"
    for name, part in known.parts:
        found = modules.get(name)
        if found is None:
            return f"{path or 'the module'} has no {name} any more"
        why = changed(found, part, f"{path}.{name}" if path else name, training)
        if why:
            return why
    return None


def interference(module: nn.Module) -> str | None:
    """What makes a call of a module do something else than its class says."""
    own = module.__dict__
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return "has hooks, which would not run"
    if "forward" in own or "_call_impl" in own or "_wrapped_call_impl" in own:
        return "has a forward of its own"
    if module._compiled_call_impl is not None:
        return "is compiled already: fuse before it is"
    return None


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(each) for each in value)
    if isinstance(value, dict):
        return all(_is_plain(each) for each in value.values())
    return isinstance(value, _PLAIN) and value == value  # a NaN never is what it was
