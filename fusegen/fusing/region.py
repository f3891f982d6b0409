"""The kernels of one chain in the place of modules: the generated module around tensors that others hold."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.fusing.calls import positional
from fusegen.fusing.snapshot import changed, hooks_for_all, snapshot
from fusegen.plan.composition import Planned, compiled

# (the submodule of the generated module, the name of its tensor, the path of the module that holds it)
Slot = tuple[nn.Module, str, tuple[str, ...]]


class Region:
    """A mixin of a generated class. It is no submodule: `owner` has its tensors, and what it takes the place of.

    Its own submodules are empty ones of the types that the kernels stand in for. Each call looks whether they hold the
    owner's tensors, and whether the owner still is what it was.
    """

    _fusegen_generated: type[nn.Module]
    # Set by region(), past nn.Module, which would make the owner a part of this one.
    _fusegen_owner: nn.Module
    _fusegen_slots: tuple[Slot, ...]
    _fusegen_norms: tuple[tuple[nn.Module, tuple[str, ...]], ...]
    _fusegen_known: Any
    _fusegen_count: int  # of the inputs
    _fusegen_rank: int  # of the first: a forward may ask for it
    _fusegen_of_images: bool  # whether the channels are dimension 1: then the kernels look at shapes
    _fusegen_devices: dict[int, bool]
    _fusegen_targets: tuple[str, ...]
    _fusegen_autocast: bool  # whether the kernels' result has the original's dtype there

    def fusegen_reference(self, *inputs: Tensor) -> Tensor:
        """What the owner computes without kernels."""
        raise NotImplementedError

    def fusegen_obstacle(self, inputs: tuple[Any, ...] | None) -> str | None:
        """Why the original has to run, or None. Has the tensors follow the owner's."""
        owner = self._fusegen_owner
        if inputs is None or len(inputs) != self._fusegen_count or not all(isinstance(x, Tensor) for x in inputs):
            return f"it was replaced for calls with {self._fusegen_count} tensors"
        first = inputs[0]
        if first.dim() != self._fusegen_rank:
            return f"an input has {first.dim()} dimensions, and the example {self._fusegen_rank}"
        if not self._fusegen_of_images and any(x.shape[:-1] != first.shape[:-1] for x in inputs[1:]):
            return "the inputs differ in their rows"
        if first.is_cuda:
            if not self._fusegen_package.built:  # type: ignore[attr-defined]
                raise RuntimeError(f"{type(self).__name__} is not compiled: call fusegen.fuse with compile=True")
            if not self._fusegen_runs_on(first.device.index):
                return "the GPU is none that the kernels were compiled for"
        if not self._fusegen_autocast and torch.is_autocast_enabled(first.device.type):
            return "under autocast the original's result has another dtype than the kernels'"
        if hooks_for_all():
            return "hooks are registered for all modules"
        why = changed(owner, self._fusegen_known, owner.training)
        if why is None:
            self.fusegen_follow()
        return why

    def fusegen_follow(self) -> None:
        """Takes the tensors and the modes that the owner has now. Nothing is written where nothing has changed."""
        owner = self._fusegen_owner
        own = self.__dict__
        if own["training"] is not owner.training:
            own["training"] = owner.training
        for shell, name, path in self._fusegen_slots:
            holder = _part(owner, path)
            held = holder._parameters.get(name)
            store = shell._parameters
            if name in shell._buffers:
                held, store = holder._buffers.get(name), shell._buffers  # type: ignore[assignment]
            if held is None:
                held = getattr(holder, name)  # a plain attribute, as some trainers have them
            if store[name] is not held:
                store[name] = held
        for shell, path in self._fusegen_norms:
            mode = _part(owner, path).training
            if shell.__dict__["training"] is not mode:
                shell.__dict__["training"] = mode

    def fusegen_told(self, reason: str) -> None:
        """Warns of a reason once, or raises it where the kernels were insisted on."""
        support = sys.modules[self._fusegen_generated.__module__]._support
        self._fusegen_tell(support.Eager(reason))  # type: ignore[attr-defined]

    def _fusegen_runs_on(self, index: int) -> bool:
        known = self._fusegen_devices.get(index)
        if known is None:
            if torch.compiler.is_compiling():
                return True
            known = runs_on(torch.cuda.get_device_capability(index), self._fusegen_targets)
            self._fusegen_devices[index] = known
        return known


def runs_on(capability: tuple[int, int], targets: tuple[str, ...]) -> bool:
    """Whether code for the targets, and PTX of the newest, runs on such a GPU."""
    at_hand = capability[0] * 10 + capability[1]
    numbers = [int(target.removeprefix("sm_").removesuffix("a")) for target in targets]
    return at_hand >= max(numbers) or any(each // 10 == at_hand // 10 and each <= at_hand for each in numbers)


def region(
    generated: Any,
    plan: Planned,
    sizes: Mapping[str, int],
    owner: nn.Module,
    paths: Mapping[str, str],
    rank: int,
    span: tuple[int, int] | None = None,
    of_images: bool = False,
) -> Any:
    """The region of an owner: of its whole forward, or of the children of an nn.Sequential that a span counts.

    sizes: of the dims among the constructor's arguments. paths: for each submodule of the generated module, the path
    of the owner's. rank: the dimensions of an input. of_images: whether its channels are dimension 1.
    """
    made: Any = _region_class(generated, span is None)(**sizes, device="meta")
    slots: list[Slot] = []
    chains = [each.chain for each in compiled([plan])]
    tables = [table for chain in chains for table in (chain.parameters, chain.buffers)]
    tensors = {each.attribute for table in tables for each in table.values()}
    for attribute in sorted({*tensors, *made.state_dict()}):
        part, _, name = attribute.rpartition(".")
        slots.append((made.get_submodule(part), name, _steps(paths[part] if part else "")))
    # A norm or a dropout that is written out has no module of its own: it has the owner's mode.
    norms = [(shell, _steps(paths.get(name, ""))) for name, shell in made.named_children()]
    made.__dict__.update(
        _fusegen_owner=owner,
        _fusegen_slots=tuple(slots),
        _fusegen_norms=tuple(norms),
        _fusegen_known=snapshot(owner, None if span is None else list(owner._modules)[slice(*span)]),
        _fusegen_count=len(plan.spec.inputs),
        _fusegen_rank=rank,
        _fusegen_of_images=of_images,
        _fusegen_devices={},
        _fusegen_autocast=True,
        _fusegen_targets=tuple(plan.spec.targets),
        _fusegen_span=span,
    )
    made.fusegen_follow()
    return made


@functools.cache
def _region_class(generated: Any, is_whole: bool) -> type[nn.Module]:
    def whole(self: Any, *inputs: Tensor) -> Tensor:
        owner = self._fusegen_owner
        return type(owner)._fusegen_original.forward(owner, *inputs)

    def run(self: Any, x: Tensor) -> Tensor:
        begin, end = self._fusegen_span
        for child in list(self._fusegen_owner._modules.values())[begin:end]:
            x = child(x)
        return x

    def here(self: Any, *inputs: Tensor) -> Any:
        """A module of several regions has no reference of the whole in a call: elsewhere the owner's forward runs."""
        if inputs[0].device.type != self._fusegen_package.device:
            return self.fusegen_reference(*inputs)
        return generated._fusegen_run(self, *inputs)

    names = {"fusegen_reference": whole if is_whole else run, "_fusegen_generated": generated}
    if hasattr(generated, "_fusegen_chain"):
        names["_fusegen_run"] = here
    return type(generated.__name__, (Region, generated), names)


def given(module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...] | None:
    """The inputs of a call of a replaced module, in the order of the spec's."""
    return positional(module._fusegen_original, inputs, named)


def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


def _part(module: nn.Module, path: tuple[str, ...]) -> nn.Module:
    for name in path:
        module = module._modules[name]  # type: ignore[assignment]
    return module
