"""Tensors that a layer computes in each call: under torch.nn.utils.parametrize, or old weight_norm.

Such a layer's class is a subclass that parametrize makes, with a property for each tensor. What it
computes may have effects of its own, as the power iteration of spectral_norm in training, so it is
computed once in a call, whether the kernels or PyTorch's operators run then.
"""

import contextlib
import copy

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.weight_norm import WeightNorm

# What a class may not have another of than the layer's: what a call goes through, and reads.
_SAME = (
    *("forward", "__call__", "_call_impl", "_wrapped_call_impl", "_slow_forward"),
    *("__getattr__", "__getattribute__", "_check_input_dim", "_conv_forward", "_output_padding"),
    *("weight", "bias", "running_mean", "running_var", "num_batches_tracked"),
)
_NAMES = frozenset(("weight", "bias"))  # what forward() of the layers reads and does not write


def is_parametrised(module, kind):
    """Whether a layer is of `kind` but for tensors that parametrizations compute."""
    own, parts = type(module), module._modules.get("parametrizations")
    if own.__bases__ != (kind,) or type(parts) is not nn.ModuleDict:
        return False
    names = parts._modules.keys()
    if not all(name in _NAMES for name in names):
        return False
    others = [name for name in _SAME if name not in names]
    return all(getattr(own, each, None) is getattr(kind, each, None) for each in others)


def kind_of(module):
    """The class of a layer in torch.nn, without what parametrize made of it."""
    own = type(module)
    return own.__bases__[0] if "parametrizations" in module._modules else own


def computed(module, name):
    """module.<name> where a parametrization computes it; else None."""
    parts = module._modules["parametrizations"]
    return getattr(module, name) if name in parts._modules else None


def renew_weight(module):
    """Computes anew what pre-hooks of old weight_norm compute before a call.

    Returns whether the layer has no other pre-hooks.
    """
    hooks = module._forward_pre_hooks.values()
    if any(type(hook) is not WeightNorm for hook in hooks):
        return False
    for hook in hooks:
        hook(module, None)
    return True


def lists_of(owner):
    """What computes the tensors of a module and its submodules, one for each tensor."""
    found = []
    for module in (owner, *owner._modules.values()):
        parts = None if module is None else module._modules.get("parametrizations")
        if type(parts) is nn.ModuleDict:
            found += [x for x in parts._modules.values() if isinstance(x, ParametrizationList)]
    return found


def is_ready(owner):
    """Whether the tensors are computed once in a call, or the call has none that are."""
    return all(isinstance(each.__dict__.get(_CALL), _Once) for each in lists_of(owner))


@contextlib.contextmanager
def once(owner, shapes_alone=False):
    """Within, each parametrization computes once.

    shapes_alone: on the device `meta`, from a copy, so that nothing changes.
    """
    lists = lists_of(owner)
    before = [each.__dict__.get(_CALL) for each in lists]
    for each in lists:
        each.__dict__[_CALL] = _Once(each, shapes_alone)
    try:
        yield
    finally:
        for each, old in zip(lists, before, strict=True):
            del each.__dict__[_CALL]
            if old is not None:
                each.__dict__[_CALL] = old


@contextlib.contextmanager
def without_data(owner, fake):
    """Within, what parametrizations and old weight_norm compute is of the FakeTensorMode `fake`.

    Nothing of the owner changes.
    """
    layers = [each for each in (owner, *owner._modules.values()) if each is not None]
    hooks = [(each, hook) for each in layers for hook in each._forward_pre_hooks.values()]
    computed_before = [
        (module.__dict__, hook.name, module.__dict__.get(hook.name))
        for module, hook in hooks
        if type(hook) is WeightNorm
    ]
    with once(owner, shapes_alone=True):
        for each in lists_of(owner):
            made, like = each.__dict__[_CALL](), next(each.parameters())
            options = {"dtype": made.dtype, "device": like.device}
            with fake:
                each.__dict__[_CALL].value = torch.empty_strided(
                    made.shape, made.stride(), **options
                )
        try:
            yield
        finally:
            for attributes, name, value in computed_before:
                if value is not None:
                    attributes[name] = value


_CALL = "forward"  # an attribute of the instance takes its place, in a trace of torch.compile too


class _Once:
    """Stands for the forward of a ParametrizationList."""

    def __init__(self, made_by, shapes_alone):
        self.call = made_by.forward
        self.made_by, self.shapes_alone, self.value = made_by, shapes_alone, None

    def __call__(self):
        if self.value is None:
            self.value = self._without_effects() if self.shapes_alone else self.call()
        return self.value

    def _without_effects(self):
        del self.made_by.__dict__[_CALL]  # a copy computes itself
        try:
            return _on_meta(self.made_by)
        finally:
            self.made_by.__dict__[_CALL] = self


def _on_meta(made_by):
    """What it computes, without data; with data where it cannot do without."""
    tensors = (*made_by.parameters(), *made_by.buffers())
    memo = {id(each): _without_data(each) for each in tensors}
    try:
        return copy.deepcopy(made_by, memo)()
    except (RuntimeError, NotImplementedError):
        devices = {each.device for each in tensors if each.is_cuda}
        with torch.random.fork_rng(devices):
            return copy.deepcopy(made_by)()


def _without_data(tensor):
    made = tensor.detach().to("meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made
