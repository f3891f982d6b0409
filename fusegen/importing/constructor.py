"""What the arguments of a constructor become: the module is made with one of them changed, and looked at.

Nothing is told by equal values: a size of 64 and 64 groups are told apart.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Facts = dict[str, Any]


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def facts(module: nn.Module) -> Facts:
    """Every number that a module holds: `bn.eps`, a size as `fc.weight[0]`, and shapes as `bias.shape`."""
    found: Facts = {}
    for path, part in module.named_modules():
        prefix = f"{path}." if path else ""
        for name, value in vars(part).items():
            several = value if isinstance(value, tuple) else ()
            found |= {f"{prefix}{name}[{index}]": each for index, each in enumerate(several) if is_number(each)}
            if is_number(value):
                found[f"{prefix}{name}"] = value
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        found[f"{name}.shape"] = tuple(tensor.shape)
        found |= {f"{name}[{index}]": size for index, size in enumerate(tensor.shape)}
    return found


@dataclass
class Constructor:
    """A class with the arguments of one instance.

    follows: what of the module's facts is an argument. derived: what changes with an argument, but is another number.
    unknown: arguments that could not be changed.
    """

    make: Callable[..., nn.Module]
    values: dict[str, Any]
    defaults: dict[str, Any]
    follows: dict[str, str] = field(default_factory=dict)
    derived: dict[str, set[str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, make: Callable[..., nn.Module], args: Any) -> Constructor:
        """args: positional ones, or a mapping of names. Raises TypeError for what the constructor does not take."""
        signature = inspect.signature(make)
        bound = signature.bind(**args) if isinstance(args, Mapping) else signature.bind(*args)
        bound.apply_defaults()
        kinds = {name: each.kind for name, each in signature.parameters.items()}
        values = {
            name: value
            for name, value in bound.arguments.items()
            if kinds[name] not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        }
        defaults = {
            name: each.default
            for name, each in signature.parameters.items()
            if each.default is not inspect.Parameter.empty
        }
        return cls(make, values, defaults)

    def instance(self, changes: Mapping[str, Any] | None = None, device: str = "cpu", seed: int = 0) -> nn.Module:
        """A new module. The caller's random state stays as it is."""
        with torch.random.fork_rng(devices=[]), torch.device(device):
            torch.manual_seed(seed)
            return self.make(**{**self.values, **(changes or {})})

    def examine(self) -> None:
        """Fills in what follows from which argument."""
        device = "meta"
        try:
            before = facts(self.instance(device=device))
        except Exception:  # a constructor that looks at values, which `meta` has not
            device = "cpu"
            before = facts(self.instance(device=device))
        for name, value in self.values.items():
            for other in changed(value):
                try:
                    after = facts(self.instance({name: other}, device))
                except Exception:  # theirs to refuse: sizes that do not divide, probabilities above 1
                    continue
                self._note(name, value, other, before, after)
                break
            else:
                if name not in self.defaults or value != self.defaults[name]:
                    self.unknown.append(name)

    def _note(self, name: str, old: Any, value: Any, before: Facts, after: Facts) -> None:
        """Compares the facts with one argument at an old and at another value."""
        old = tuple(old) if isinstance(old, list) else old
        if isinstance(value, tuple):
            shaped = {fact.removesuffix(".shape") for fact in after if fact.endswith(".shape") and after[fact] == value}
            shaped = {tensor for tensor in shaped if before.get(f"{tensor}.shape") != value}
        else:
            shaped = set()
        for fact in before.keys() | after.keys():
            if before.get(fact) == after.get(fact) or (fact.endswith(".shape") and not isinstance(value, tuple)):
                continue
            if any(fact.startswith(f"{tensor}[") for tensor in shaped):
                continue
            if (before.get(fact), after.get(fact)) == (old, value) and fact not in self.follows:
                self.follows[fact] = name
            else:
                self.follows.pop(fact, None)
                self.derived.setdefault(name, set()).add(fact)

    def is_shape(self, name: str) -> bool:
        value = self.values.get(name)
        return isinstance(value, tuple | list) and all(isinstance(each, int) for each in value)


def changed(value: Any) -> Iterator[Any]:
    """Other values of the same kind to try."""
    if isinstance(value, tuple | list) and value and all(isinstance(each, int) for each in value):
        yield tuple(each * 2 if each > 1 else 3 for each in value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from (value * 2, value * 3, value // 2, value + 1, 1)
    elif isinstance(value, float):
        yield from (value * 1.25 + 0.0625, value * 0.75, value / 2 + 0.03125, -value)
