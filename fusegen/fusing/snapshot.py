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
from torch.nn.modules import module as _module
from torch.utils.module_tracker import ModuleTracker

_PLAIN = (bool, int, float, str, type(None), torch.dtype, types.FunctionType, types.BuiltinFunctionType)
_METHODS = (property, staticmethod, classmethod)
# The attribute of a module that has its regions.
REGIONS = "_fusegen_regions"
# What every module has, and is asked for elsewhere.
_EVERY = frozenset(vars(nn.Module()))
# PyTorch's own that may be in a mode of their own: the kernels ask them.
_WITH_MODES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# Of a module's own: hooks and compilation, and what trainers put around the call of a replaced module.
_OWN = ("forward", "_call_impl", "_wrapped_call_impl", "_compiled_call_impl")
_FOR_ALL = (
    _module._global_forward_pre_hooks,
    _module._global_forward_hooks,
    _module._global_backward_pre_hooks,
    _module._global_backward_hooks,
)


class Snapshot(NamedTuple):
    """Of a module. path: from the module that is replaced. values: its plain attributes. names: of all its attributes.
    shared: the plain attributes and the methods of the user's classes. tensors: the names of its own parameters and
    buffers. parts: of its submodules, by name. size: how many submodules there are."""

    path: str
    kind: type[nn.Module]
    forward: Any
    values: tuple[tuple[str, Any], ...]
    names: frozenset[str]
    shared: tuple[tuple[type, str, Any], ...]
    tensors: list[str]
    parts: tuple[tuple[str, Snapshot], ...]
    size: int


def snapshot(module: nn.Module, names: Collection[str] | None = None, path: str = "") -> Snapshot:
    """names: of the submodules that matter; None for all."""
    own = vars(module)
    kept = tuple((name, copy.deepcopy(value)) for name, value in attributes(module).items() if plain(value))
    chosen = module._modules if names is None else {name: module._modules[name] for name in names}
    there = {name: part for name, part in chosen.items() if part is not None}
    parts = tuple((name, snapshot(part, path=f"{path}.{name}" if path else name)) for name, part in there.items())
    kind = type(module)
    names = frozenset(own) if path else frozenset((*own, REGIONS))
    return Snapshot(path, kind, kind.forward, kept, names, _shared(kind), _tensors(own), parts, len(module._modules))


def attributes(module: nn.Module) -> dict[str, Any]:
    """Those that a forward may read besides tensors and submodules."""
    return {name: value for name, value in vars(module).items() if name not in _EVERY}


def _shared(kind: type[nn.Module]) -> tuple[tuple[type, str, Any], ...]:
    theirs = [each for each in kind.__mro__ if each is not object and not each.__module__.startswith("torch.nn.")]
    named = [(each, name, value) for each in theirs for name, value in vars(each).items() if name[:2] != "__"]
    return tuple(
        (each, name, copy.deepcopy(value) if plain(value) else value)
        for each, name, value in named
        if plain(value) or isinstance(value, _METHODS)
    )


def changed(module: nn.Module, known: Snapshot, training: bool) -> str | None:
    """What has changed since, in words; None if nothing has. training: the mode of all parts.

    Of the module that is replaced, hooks and the type may be others: they are asked as before.
    """
    own = module.__dict__
    if known.path:
        if type(module) is not known.kind:
            return f"{known.path} is of type {type(module).__name__} now, not {known.kind.__name__}"
        why = interference(module)
        if why:
            return f"{known.path} {why}"
        if own["training"] is not training and known.kind not in _WITH_MODES:
            return f"{known.path} is in another mode than the module that holds it"
    if known.kind.forward is not known.forward:
        return f"{known.kind.__name__}.forward was replaced"
    for kind, name, value in known.shared:
        if kind.__dict__.get(name) != value:
            return f"{kind.__name__}.{name} was replaced"
    if len(own) != len(known.names):
        for name in own:
            # Trainers leave private notes, which the class knows nothing of.
            if name not in known.names and (name[0] != "_" or hasattr(known.kind, name)) and name not in _OWN:
                return f"{known.path}{'.' if known.path else ''}{name} was no attribute before"
    for name, value in known.values:
        if own.get(name) != value:
            return f"{known.path}{'.' if known.path else ''}{name} is not {value!r} any more"
    if _tensors(own) != known.tensors:
        return f"{known.path or 'the module'} has other parameters now"
    modules = own["_modules"]
    if len(modules) != known.size:
        return f"{known.path or 'the module'} has other submodules now"
    for name, part in known.parts:
        found = modules.get(name)
        if found is None:
            return f"{part.path} is not there any more"
        why = changed(found, part, training)
        if why:
            return why
    return None


def hooks_for_all() -> bool:
    """Whether hooks for all modules are registered, which would not run for parts; FlopCounterMode's only watch."""
    found = [each for hooks in _FOR_ALL for each in hooks.values()]
    return not all(isinstance(getattr(each, "__self__", None), ModuleTracker) for each in found)


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


def _tensors(own: dict[str, Any]) -> list[str]:
    found = [name for name, tensor in own["_parameters"].items() if tensor is not None]
    if own["_buffers"]:
        found += [name for name, tensor in own["_buffers"].items() if tensor is not None]
    return found


def plain(value: Any) -> bool:
    """Whether equal values mean the same to whoever reads them."""
    if isinstance(value, tuple | list):
        return all(plain(each) for each in value)
    if isinstance(value, dict):
        return all(plain(each) for each in value.values())
    return isinstance(value, _PLAIN) and value == value  # a NaN never is what it was
