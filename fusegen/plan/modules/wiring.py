"""Proves that the regions of a chain, one after the other, are the chain: each step once, of the same values.

No number is computed. A value is what made it: a step, without the names that it gives and takes, and the values that
these names stand for. Two values that are made alike are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fusegen.errors import InternalError
from fusegen.ops.step import Step
from fusegen.plan.modules.module import ModulePlan, PlannedRegion
from fusegen.plan.regions.boundaries import can_be_exchanged
from fusegen.spec.model import RESULT, SpecModel

_OPERANDS = ("input", "mask", "target", "weight")
_NAMES = ("save", "from_", *_OPERANDS, "running")


class _Fault(Exception):
    """A value that is another one than in the chain."""


@dataclass
class _Chain:
    """What is made of some inputs by steps in turn.

    known: the terms of all values, which are numbers of their places there. named: the values that have a name. made:
    that of each step. parameters: the steps that give parameters of this chain their shapes.
    """

    known: list[tuple[Any, ...]]
    named: dict[str, int]
    made: list[int] = field(default_factory=list)
    parameters: dict[str, Step] = field(default_factory=dict)

    def run(self, steps: Iterable[Any], running: int) -> int:
        """The value behind all steps. running: the one in front of the first."""
        for step in steps:
            running = self.value(step.from_) if step.from_ is not None else running
            operands, bare = self._taken(step, running)
            running = self.number(operands, bare)
            self.made.append(running)
            if len(step.saved) > 1:
                self.named |= {name: self.number((running,), index) for index, name in enumerate(step.saved)}
                running = self.named[step.running_name or step.saved[0]]
            elif step.save is not None:
                self.named[step.save] = running
        return running

    def returned(self, spec: SpecModel | None, last: int) -> list[int]:
        """What a module of this chain returns, whose value at the end is `last`."""
        names = None if spec is None else spec.outputs
        return [last] if names is None else [self.named.get(name, last) for name in names]

    def value(self, name: str) -> int:
        if name not in self.named:
            raise _Fault(f"takes '{name}', which nothing in front of it makes")
        return self.named[name]

    def number(self, *term: Any) -> int:
        if term not in self.known:
            self.known.append(term)
        return self.known.index(term)

    def _taken(self, step: Step, running: int) -> tuple[tuple[tuple[str, int], ...], Step]:
        """The values that a step takes, and the step without names: two that exchange their operands are one."""
        names = {"value": step.taken_value, **{key: getattr(step, key, None) for key in _OPERANDS}}
        update: dict[str, Any] = {key: None for key in _NAMES if hasattr(step, key)} | {"parts": step.number_of_parts}
        if step.taken_value is not None:
            update["value"] = None
        operands = [("running", running)]
        operands += [("values", self.value(name)) for name in step.further_values]
        if step.further_values:
            update["values"] = ()
        for key, name in names.items():
            if name is not None:
                operands.append(("value" if key == "input" else key, self.value(name)))
        if getattr(step, "swap", False) and can_be_exchanged(step) and operands[1:]:
            operands = [("running", operands[1][1]), ("value", running)]
            update["swap"] = False
        name = getattr(step, "parameter", None)
        if name is not None:
            owner = self.parameters.setdefault(name, step)
            keys = [key for key in ("shape", "init", "learnt") if hasattr(step, key) and hasattr(owner, key)]
            update |= {key: getattr(owner, key) for key in keys}
        return tuple(operands), step.model_copy(update=update)


def prove_wiring(planned: ModulePlan) -> ModulePlan:
    """The plan. Raises InternalError unless its regions compute each step of the chain once, of the same values,
    and what the module returns."""
    try:
        _compare(planned)
    except _Fault as fault:
        raise InternalError(f"the regions of {planned.spec.name} are not its chain: {fault}") from None
    return planned


def _compare(planned: ModulePlan) -> None:
    spec = planned.spec
    inputs = {name: place for place, name in enumerate(spec.inputs)}
    whole = _Chain([(name,) for name in inputs], {**inputs})
    module = _Chain(whole.known, {**inputs})
    last = whole.run(spec.chain, inputs[spec.running_input])
    for region in planned.regions:
        try:
            _call(region, whole, module)
        except _Fault as fault:
            raise _Fault(f"region '{region.name}' {fault}") from None
    places = sorted(place for region in planned.regions for place in region.places)
    if places != [*range(len(spec.chain))]:
        raise _Fault("a step is in no region, or in two")
    for name, given, expected in zip(
        spec.outputs or (RESULT,), planned.returned, whole.returned(spec, last), strict=True
    ):
        if module.value(given) != expected:
            raise _Fault(f"what is returned as '{name}' is '{given}', another value")


def _call(region: PlannedRegion, whole: _Chain, module: _Chain) -> None:
    """Adds what a region makes to the values of the module, as its call does: by places, not by names."""
    spec = None if region.plan is None else region.plan.spec
    steps: Sequence[Any] = region.steps if spec is None else spec.chain
    if region.frame is not None:  # a row's last dimension is that of the images
        steps = [_of_images(*pair, region.spatial) for pair in zip(steps, region.steps, strict=True)]
    names = region.inputs if spec is None else spec.inputs
    taken = [module.value(name) for name in region.inputs]
    own = _Chain(whole.known, dict(zip(names, taken, strict=True)))
    last = own.run(steps, taken[0])
    for place, made, step in zip(region.places, own.made, steps, strict=True):
        if made != whole.made[place]:
            (found, _), (expected, _) = whole.known[made], whole.known[whole.made[place]]
            unlike = [key for (key, one), (_, other) in zip(found, expected, strict=False) if one != other]
            raise _Fault(f"has another {' and '.join(unlike) or 'key'} in its {step.op}, step {place + 1} of the chain")
    for name, value in zip(region.results, own.returned(spec, last), strict=True):
        module.named[name] = value
        if value != whole.named.get(name, value):
            raise _Fault(f"gives another value for '{name}'")


def _of_images(step: Any, written: Any, spatial: int) -> Step:
    """A step over the last dimension of rows as one over that of images with so many dimensions of positions. written:
    the step as the chain has it, where the dimension may be a list of one."""
    if getattr(step, "dim", None) != -1:
        return step
    last = spatial + 1
    return step.model_copy(update={"dim": (last,) if isinstance(written.dim, tuple) else last})
