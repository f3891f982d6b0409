"""Another forward in the place of a module's: its class becomes a subclass of itself.

The object stays, so hooks, parameters, the state_dict, mode, device and dtype do. A copy has the kernels too. A file of
the whole module has its own class: who loads it needs none of this.
"""

from __future__ import annotations

import copy
import functools
import types
from typing import Any

from torch import fx, nn

from fusegen.fusing.region import given
from fusegen.fusing.snapshot import REGIONS


class Replaced:
    """The first base of a replaced module's class. Its `_fusegen_regions` has the region, or the regions of the runs of
    an nn.Sequential in order."""

    _fusegen_original: type[nn.Module]

    def train(self, mode: bool = True) -> Any:
        result = super().train(mode)  # type: ignore[misc]
        for each in self.__dict__[REGIONS]:
            each.train(mode)
            each.fusegen_follow()
        return result

    def _apply(self, *arguments: Any, **named: Any) -> Any:
        result = super()._apply(*arguments, **named)  # type: ignore[misc]
        for each in self.__dict__[REGIONS]:
            each.train(each.training)  # which forgets what was made of the tensors before
            each.fusegen_follow()
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For a file: the module as it was, with its state of today."""
        reduced: Any = super().__reduce_ex__(protocol)
        make, args, state = reduced[:3]
        args = tuple(self._fusegen_original if each is type(self) else each for each in args)
        if isinstance(state, dict):
            state = {name: value for name, value in state.items() if name != REGIONS}
        # A pickler takes copyreg.__newobj__ for the object's own class alone.
        if make.__name__ == "__newobj__":
            make = object.__new__
        return (make, args, state, *reduced[3:])

    def __prepare_scriptable__(self) -> Any:
        """For torch.jit.script: the original, around the same tensors."""
        made = object.__new__(self._fusegen_original)
        made.__dict__.update({name: value for name, value in self.__dict__.items() if name != REGIONS})
        return made

    def _replicate_for_data_parallel(self) -> Any:
        """A replica in another thread would share the region: it runs the original."""
        replica = super()._replicate_for_data_parallel()  # type: ignore[misc]
        return _restored(replica)


class _Whole(Replaced):
    def forward(self, *inputs: Any, **named: Any) -> Any:
        region, original = self.__dict__[REGIONS][0], self._fusegen_original.forward
        if inputs and isinstance(inputs[0], fx.Proxy):
            return original(self, *inputs, **named)
        in_order: Any = given(self, inputs, named)
        why = region.fusegen_obstacle(in_order)
        if why is None:
            return region._fusegen_run(*in_order)
        region.fusegen_told(why)
        return original(self, *inputs, **named)


class _Runs(Replaced):
    def forward(self, input: Any) -> Any:
        regions = iter(self.__dict__[REGIONS])
        region, end = next(regions), 0
        for index, child in enumerate(list(self._modules.values())):  # type: ignore[attr-defined]
            if index < end:
                continue
            if region is not None and index == region._fusegen_span[0]:
                why = None if isinstance(input, fx.Proxy) else region.fusegen_obstacle((input,))
                if why is None and not isinstance(input, fx.Proxy):
                    input, end = region._fusegen_run(input), region._fusegen_span[1]
                    region = next(regions, None)
                    continue
                if why is not None:
                    region.fusegen_told(why)
                region = next(regions, None)
            input = child(input)
        return input


def replace(module: nn.Module, regions: list[Any]) -> None:
    """Has regions run in place of the module's forward; `_fusegen_span` tells runs from a whole forward."""
    is_whole = regions[0]._fusegen_span is None
    module.__dict__[REGIONS] = regions
    kind: Any = type(module)
    module.__class__ = _replaced_class(kind, is_whole)


def restore(module: nn.Module) -> None:
    """The module as it was."""
    _restored(module)


def is_replaced(module: nn.Module) -> bool:
    return isinstance(module, Replaced)


def _restored(module: Any) -> Any:
    module.__dict__.pop(REGIONS)
    module.__class__ = module._fusegen_original
    return module


@functools.cache
def _replaced_class(original: Any, is_whole: bool) -> type[nn.Module]:
    base = _Whole if is_whole else _Runs
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__, "_fusegen_original": original}
    # With the signature of the original's, which trainers and tracers ask for; no frame more than that.
    forward = functools.wraps(original.forward)(types.FunctionType(base.forward.__code__, base.forward.__globals__))
    metaclass: Any = type(original)
    return metaclass(original.__name__, (base, original), {**names, "forward": forward})
