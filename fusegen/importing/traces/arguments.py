"""Which numbers of a trace are attributes of the module or arguments of its constructor, and stay that.

An attribute is found by changing it and tracing again: the numbers that change with it are the attribute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx, nn

from fusegen.errors import SpecError
from fusegen.importing.traces.constructor import Constructor, changed, is_number
from fusegen.importing.traces.convolution_runs import changes_positions
from fusegen.importing.traces.positions import Positions
from fusegen.importing.traces.trace import Trace, trace
from fusegen.spec.names import check_argument, passes

Position = tuple[str, int | str]
# What facts about sizes end in.
_CHANNELS = ("in_channels", "out_channels")
_COUNTS = ("num_features", "num_channels", "in_features", "out_features", *_CHANNELS)
_SIZES = ("]", ".shape", *(f".{count}" for count in _COUNTS))
# Numbers to draw before none outside [0, 1) means that none can be.
_DRAWS = 12
# Other values of attributes that are tried.
_CHOICES = 4


class Arguments:
    """Finds the attribute or constructor argument that a number of a trace comes from.

    constructor: None where the arguments of the module's constructor are not known. positions: the sizes of positions
    of a module of images. given: the example inputs as the user gave them, if not `inputs`.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Sequence[Tensor],
        constructor: Constructor | None,
        positions: Positions | None = None,
        given: Sequence[Tensor] = (),
    ) -> None:
        self.module, self.inputs, self.constructor = module, inputs, constructor
        self.positions = positions
        self.shapes = [tuple(x.shape) for x in given or inputs]
        self.attributes: dict[str, float] = {}  # arguments of the spec that only are attributes of the module
        self.used: set[str] = set()
        self.fixed: set[str] = set()  # arguments and attributes that are to be numbers of the spec
        self._windowed = [path for path, part in module.named_modules() if changes_positions(part)]
        self._made: dict[int, nn.Module] = {}
        self._links: dict[int, dict[Position, tuple[str, str]]] = {}

    def of_number(self, trace: Trace, node: fx.Node, index: int, key: str, value: float) -> str | None:
        """The argument that a number of the trace is: at the position, or the key, of a node's arguments."""
        path = trace.path(node)
        part = trace.module.get_submodule(path)
        if type(part).__module__.startswith("torch.nn."):
            return self.of_attribute(path, key) if key and getattr(part, key, None) == value else None
        if id(trace) not in self._links:
            self._links[id(trace)] = self._linked(trace)
        links = self._links[id(trace)]
        found = links.get((node.name, index)) or links.get((node.name, key))
        return self.of_attribute(*found) if found else None

    def of_attribute(self, path: str, attribute: str) -> str | None:
        """The argument that an attribute of a submodule is, or of the module itself."""
        fact = f"{path}.{attribute}" if path else attribute
        name = self.constructor.follows.get(fact) if self.constructor else None
        if name is not None and is_name(name) and name not in self.sized | self.fixed:
            self.used.add(name)
            return name
        if (
            path
            or attribute in self.fixed
            or not is_name(attribute)
            or (self.constructor and attribute in self.constructor.values)
        ):
            return None
        self.attributes[attribute] = float(getattr(self.module, attribute))
        return attribute

    def fix(self, names: set[str]) -> None:
        """Has arguments and attributes of these names as numbers from now on, wherever they are."""
        self.fixed |= names
        self.attributes.clear()
        self.used.clear()

    @property
    def sized(self) -> set[str]:
        """The constructor's arguments that are sizes of tensors."""
        follows = self.constructor.follows if self.constructor else {}
        return {name for fact, name in follows.items() if fact.endswith(_SIZES)}

    def sizes(self, facts: Mapping[str, int] | Sequence[str], covered: Collection[str] = ()) -> str | None:
        """The argument that all these sizes are, or None. facts: with how many times the argument each is, if not once.
        covered: sizes that are so many times an argument, which is no other number."""
        if self.constructor is None:
            return None
        counts = facts if isinstance(facts, Mapping) else dict.fromkeys(facts, 1)
        found = {self._source(fact, count) for fact, count in counts.items()}
        name = found.pop() if len(found) == 1 else None
        if name is None or name in self.fixed or not is_name(name):
            return None
        return None if self._others(name) - {*covered} else name

    def _source(self, fact: str, count: int) -> str | None:
        """The argument of which a size is so many times."""
        assert self.constructor is not None
        if count == 1:
            return self.constructor.follows.get(fact)
        times, name = self.constructor.multiples.get(fact, (0, ""))
        return name if times == count else None

    def _others(self, name: str) -> set[str]:
        """Sizes that follow from an argument and are another number, but for those of a convolution's weight, which
        follow from its channels."""
        derived = self.constructor.derived.get(name, ()) if self.constructor else ()
        weights = tuple(f"{path}.weight[" for path in self._windowed)
        return {fact for fact in derived if fact.endswith(_SIZES) and not fact.startswith(weights)}

    def option(self, path: str, fact: str) -> str | None:
        """The argument that an option of a convolution or of pooling is, and nothing besides that is a size."""
        follows = self.constructor.follows if self.constructor else {}
        name = follows.get(f"{path}.{fact}")
        if name is None or name in (*self.fixed, "same", "valid") or not is_name(name):
            return None
        sized = {each for each, other in follows.items() if other == name and each.endswith(_SIZES)}
        parts = tuple(f"{each}." for each in self._windowed)
        return name if all(each.startswith(parts) and not each.endswith(_CHANNELS) for each in sized) else None

    def is_depthwise(self, path: str) -> bool:
        """Whether the argument that a convolution's groups are is that of its input's channels."""
        follows = self.constructor.follows if self.constructor else {}
        groups = follows.get(f"{path}.groups")
        return groups is not None and groups == follows.get(f"{path}.in_channels")

    def shape(self, tensor: str) -> str | None:
        """The argument that is the shape of a parameter."""
        name = self.constructor.follows.get(f"{tensor}.shape") if self.constructor else None
        if name is None or name in self.fixed or not is_name(name):
            return None
        return name if not self.constructor.derived.get(name) else None  # type: ignore[union-attr]

    def initial(self, parameter: str) -> str | float:
        """What a parameter begins with: a filling, a number, or an argument."""
        values = own_tensor(self._fresh(0), parameter)
        first = float(values.flatten()[0]) if values.numel() else 0.0
        if not bool((values == first).all()) or (values.numel() == 1 and self._is_random(parameter, first)):
            # What a buffer holds that is drawn from no generator comes with the state_dict.
            is_table = not self._is_random(parameter, first) and parameter in dict(self.module.named_buffers())
            return "ones" if is_table else self._filling(parameter)
        for name, value in (self.constructor.values if self.constructor else {}).items():
            if name in self.fixed or not isinstance(value, float) or not is_name(name):
                continue
            if float(torch.tensor(value, dtype=values.dtype)) == first:
                other = next(changed(value))
                after = own_tensor(self.constructor.instance({name: other}), parameter)  # type: ignore[union-attr]
                if bool((after == torch.tensor(other, dtype=values.dtype)).all()):
                    self.used.add(name)
                    return name
        return {1.0: "ones", 0.0: "zeros"}.get(first, float(f"{first:.7g}"))

    def _filling(self, parameter: str) -> str:
        """`rand` if no number that was drawn lies outside [0, 1)."""
        drawn = 0
        for seed in range(_DRAWS):
            values = own_tensor(self._fresh(seed), parameter)
            if not bool((values >= 0).all() and (values < 1).all()):
                return "randn"
            drawn += values.numel()
            if drawn > _DRAWS or self.constructor is None:
                break
        return "rand"

    def _is_random(self, parameter: str, value: float) -> bool:
        """Whether the first element is another one from another seed."""
        return float(own_tensor(self._fresh(1), parameter).flatten()[0]) != value

    def _fresh(self, seed: int) -> nn.Module:
        """The module as its constructor makes it, where that is known."""
        if self.constructor is None:
            return self.module
        if seed not in self._made:
            self._made = {seed: self.constructor.instance(seed=seed)}
        return self._made[seed]

    def _linked(self, base: Trace) -> dict[Position, tuple[str, str]]:
        """The numbers of a trace that are attributes: by node and position, the submodule and its attribute."""
        numbers = _numbers(base)
        values = set(numbers.values())
        owned: list[tuple[str, str]] = []
        for path, part in base.module.named_modules():
            if not type(part).__module__.startswith("torch.nn."):
                owned += [(path, name) for name, value in vars(part).items() if is_number(value) and value in values]
        found = self._changed_with(base, owned, numbers) if owned else {}
        if found is None:  # they do not fit together
            found = {}
            for each in owned:
                for position, link in (self._changed_with(base, [each], numbers) or {}).items():
                    found.setdefault(position, link)
        return found

    def _changed_with(
        self, base: Trace, owned: list[tuple[str, str]], numbers: dict[Position, float]
    ) -> dict[Position, tuple[str, str]] | None:
        """The numbers that are other ones, each with the attribute that it is, where these attributes are; None where
        that is another trace."""
        parts = [vars(base.module.get_submodule(path)) for path, _ in owned]
        before = [part[name] for part, (_, name) in zip(parts, owned, strict=True)]
        for choice in range(_CHOICES):
            others = _distinct(before, choice)
            try:
                for part, (_, name), other in zip(parts, owned, others, strict=True):
                    part[name] = other
                spatial = self.positions.spatial if self.positions else 0
                after = _numbers(trace(base.module, self.inputs, base.training, spatial))
            except SpecError:
                continue
            finally:
                for part, (_, name), value in zip(parts, owned, before, strict=True):
                    part[name] = value
            if after.keys() == numbers.keys():
                links = list(zip(owned, before, others, strict=True))
                pairs = {position: (number, after[position]) for position, number in numbers.items()}
                return {at: link for at, pair in pairs.items() for link, *both in links if pair == tuple(both)}
        return None


def _distinct(values: Sequence[float], choice: int) -> list[Any]:
    """Another value for each, all different: of the kind of the same index in `changed`."""
    found: list[Any] = []
    for value in values:
        others = list(changed(value))
        other = others[min(choice, len(others) - 1)]
        while other in found or other in values:
            other = other + 1 if isinstance(other, int) else other * 1.0009765625 + 1e-9
        found.append(other)
    return found


def _numbers(trace: Trace) -> dict[Position, float]:
    """Every number among the arguments of the nodes."""
    found: dict[Position, float] = {}
    for node in trace.nodes:
        arguments: list[tuple[int | str, Any]] = [*enumerate(node.args), *node.kwargs.items()]
        found |= {(node.name, key): value for key, value in arguments if is_number(value)}
    return found


def own_tensor(module: nn.Module, path: str) -> Tensor:
    """The parameter or buffer of this path."""
    found: Tensor = attrgetter(path)(module)
    return found.detach()


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers by their paths."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def is_name(name: str) -> bool:
    """Whether an argument of a spec may be called that."""
    return passes(check_argument, name)
