"""What a call of a module chose, kept for later calls that find everything as it was.

A choice follows from what the module and its submodules hold, from functions and methods of torch,
and from the inputs. The former are looked at in C++ (python_module.cpp): all must be the very same
objects. Of tensors that may have got other data since, the op itself checks dtype, shape and device
in each call (torch_call.h). Where it refuses them, the module chooses anew.
"""

from operator import attrgetter
from typing import NamedTuple

import torch
from torch import nn
from torch._C import (
    _are_functorch_transforms_active,
    _get_tracing_state,
    _is_any_autocast_enabled,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch.autograd import forward_ad
from torch.nn import functional as F

from .operators import Operator
from .stand_in import FUNCTIONS, HOOKS_OF_ALL, PLAIN

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_METHODS = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "_check_input_dim")
_FACTS = attrgetter("shape", "dtype", "device")
_NUMBERS = (int, float, bool, type(None))
_MOST_CALLS = 64  # with inputs of different shapes
_WORTH_IT = 16  # so many calls save more time than a look takes
_LONGEST_PAUSE = 1024


class _Look(NamedTuple):
    """What a module held. Modules of one class that hold the same make the same choices.

    kind: the class. kept: of each dict or object that was looked at itself, then of all that it
    holds the name, the value and its type; in place of the module's own dict, None: what the module
    holds must not hold the module. unchanged: the function of C++.
    """

    kind: type
    kept: tuple
    unchanged: object

    @classmethod
    def at(cls, module, unchanged):
        return cls(type(module), _looked_at(module), unchanged)

    def fits(self, module):
        return self.kind is type(module) and self.unchanged(self.kept, module.__dict__)


class _Call(NamedTuple):
    """An operator and its arguments; in the places (of the argument, of the input) are inputs.

    size: of the product's weight, which tells the channels.
    """

    look: _Look
    operator: Operator
    arguments: list
    places: tuple
    size: int


class _Memory:
    """The calls of one module, or of a region of it, by what they take of the inputs.

    look: the last one. found: so many calls were recalled since. pause: so many are chosen before
    one is kept again: twice as many each time where keeping was of no use.
    """

    def __init__(self):
        self.look, self.calls, self.found, self.pause, self.last_pause = None, {}, 0, 0, 0

    def rest(self):
        """Drops everything for now."""
        longer = min(2 * self.last_pause, _LONGEST_PAUSE)
        self.pause = self.last_pause = 1 if self.found >= _WORTH_IT else max(longer, 1)
        self.look, self.calls, self.found = None, {}, 0


def recall(module, part, inputs):
    """The operator and its arguments, where a call like this was made; else None."""
    if torch.compiler.is_compiling():
        return None
    memories = getattr(module, "_fusegen_memories", None)
    memory = None if memories is None else memories.get(part)
    if memory is None or not memory.calls or _is_watched():
        return None
    call = memory.calls.get(_facts(inputs))
    if call is None or not call.look.fits(module):
        return None
    arguments = call.arguments.copy()
    for place, index in call.places:
        arguments[place] = inputs[index]
    if call.operator.linear and arguments[1].numel() != call.size:
        return None
    memory.found += 1
    return call.operator, arguments


def remember(module, part, inputs, operator, arguments):
    """Keeps a choice, if it follows from nothing else than what recall() looks at."""
    if torch.compiler.is_compiling():
        return
    memories = getattr(module, "_fusegen_memories", None)
    if memories is None:
        memories = module._fusegen_memories = {}
    memory = memories.get(part)
    if memory is None:
        memory = memories[part] = _Memory()
    if memory.pause:
        memory.pause -= 1
        return
    facts, places = None if _is_watched() else _facts(inputs), None
    if facts is not None and _is_plain(module, part, operator):
        places = _places(module, inputs, arguments)
    is_full = len(memory.calls) == _MOST_CALLS
    if places is None or is_full or (memory.look is not None and not memory.look.fits(module)):
        memory.rest()
        return
    if memory.look is None:
        memory.look = _Look.at(module, operator.package.unchanged)
    size = arguments[1].numel() if operator.linear else 0
    memory.calls[facts] = _Call(memory.look, operator, list(arguments), places, size)


def _is_plain(module, part, operator):
    """Whether choices follow from nothing that others may change."""
    owner, modules = part or module, _modules(module)
    return (
        type(operator) is Operator
        and operator.package.unchanged is not None
        and owner._fusegen_loss is None
        and not module._fusegen_transposed
        # Not a subclass, which may compute what is a constant here.
        and "_fusegen_package" in type(module).__dict__
        # This precision is chosen by the GPU, too, and by which gradients are wanted.
        and not (operator.split and module.fusegen_precision == "fp32_split")
        and nn.SyncBatchNorm not in map(type, modules)  # by the process group
        and all("parametrizations" not in each._modules for each in modules)
        # Batches are counted for an average.
        and all(each.__dict__.get("momentum", 0) is not None for each in modules)
    )


def forget(module):
    """Drops what is kept for a module, with the tensors that it had."""
    module._fusegen_memories = None


def _is_watched():
    """Whether something may take calls of operators for others, or cast what they take."""
    return (
        _len_torch_dispatch_stack()
        or _len_torch_function_stack()
        or _are_functorch_transforms_active()
        or _is_any_autocast_enabled()
        or _get_tracing_state() is not None
    )


def _facts(inputs):
    """What a choice takes of the inputs; None where one is no plain tensor."""
    return tuple(map(_FACTS, inputs)) if PLAIN.issuperset(map(type, inputs)) else None


def _places(module, inputs, arguments):
    """Of each argument that is an input its place, and that of the input. None where an argument
    may be another one in the next call: made of a tensor, or drawn."""
    own = {id(x) for each in _modules(module) for x in _tensors(each)}
    given = {id(x): index for index, x in enumerate(inputs)}
    if len(given) < len(inputs) or not own.isdisjoint(given):
        return None  # what of them an argument is
    places = []
    for place, each in enumerate(arguments):
        if id(each) in given:
            places.append((place, given[id(each)]))
        elif type(each) not in _NUMBERS and id(each) not in own:
            return None
    return tuple(places)


def _looked_at(module):
    """See _Look.kept."""
    modules = _modules(module)
    dicts = [each.__dict__ for each in modules[1:]]
    dicts += [each.__dict__[name] for each in modules[1:] for name in _HOOKS]
    for each in modules:
        dicts += (each._parameters, each._buffers, each._modules)
    kinds = {type(each) for each in modules[1:]}
    return (
        (None, *_entries(module.__dict__.items())),
        *((each, *_entries(each.items())) for each in (*dicts, *HOOKS_OF_ALL)),
        *((each, "__dict__", each.__dict__, dict) for each in modules[1:]),
        *((each, *_entries(_attributes(each, _METHODS))) for each in kinds),
        (F, *_entries((each.__name__, each) for each in FUNCTIONS)),
        (forward_ad, *_entries(_attributes(forward_ad, ("_current_level",)))),
    )


def _modules(module):
    return [module, *(each for each in module._modules.values() if each is not None)]


def _tensors(module):
    return (*module._parameters.values(), *module._buffers.values())


def _entries(items):
    return [x for name, value in items for x in (name, value, type(value))]


def _attributes(holder, names):
    return [(name, getattr(holder, name)) for name in names if hasattr(holder, name)]
