"""What the arguments of a constructor become: the module is made with one of them changed, and looked at.

Nothing is told by equal values: a size of 64 and 64 groups are told apart.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Facts = dict[str, Any]
_WITHOUT_NAMES = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


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


# Of sizes and numbers of groups that stand for an argument, so many other values have to have shown it.
_AGREE = 2


@dataclass
class Constructor:
    """A class with the arguments of one instance.

    follows: what of the module's facts is an argument. derived: what changes with an argument, but is another number.
    multiples: those of the latter that are so many times the argument, and nothing else.
    device: where an instance without data can be made. named: arguments that are taken by name alone.
    """

    make: Callable[..., nn.Module]
    values: dict[str, Any]
    defaults: dict[str, Any]
    follows: dict[str, str] = field(default_factory=dict)
    derived: dict[str, set[str]] = field(default_factory=dict)
    multiples: dict[str, tuple[int, str]] = field(default_factory=dict)
    device: str = "meta"
    named: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, make: Callable[..., nn.Module], args: Any) -> Constructor:
        """args: positional ones, or a mapping of names. Raises TypeError for what the constructor does not take, and
        for what it takes as `*args` or `**kwargs`, which has no name in a spec."""
        signature = inspect.signature(make)
        bound = signature.bind(**args) if isinstance(args, Mapping) else signature.bind(*args)
        for name, value in bound.arguments.items():
            if signature.parameters[name].kind in _WITHOUT_NAMES and value:
                raise TypeError(f"'{name}' takes arguments that have no names of their own")
        bound.apply_defaults()
        named = {name: each for name, each in signature.parameters.items() if each.kind not in _WITHOUT_NAMES}
        values = {name: value for name, value in bound.arguments.items() if name in named}
        empty = inspect.Parameter.empty
        defaults = {name: each.default for name, each in named.items() if each.default is not empty}
        by_name = {name for name, each in named.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
        return cls(make, values, defaults, named=by_name)

    def instance(self, changes: Mapping[str, Any] | None = None, device: str = "cpu", seed: int = 0) -> nn.Module:
        """A new module. The caller's random state stays as it is."""
        with torch.random.fork_rng(devices=[]), torch.device(device):
            torch.manual_seed(seed)
            return self.make(**{**self.values, **(changes or {})})

    def examine(self) -> None:
        """Fills in what follows from which argument."""
        try:
            before = facts(self.instance(device=self.device))
        except Exception:  # a constructor that looks at values, which `meta` has not
            self.device = "cpu"
            before = facts(self.instance(device=self.device))
        for name, value in self.values.items():
            found: list[tuple[Any, Facts]] = []
            for others in alternatives(value):
                self._try(name, [each for each in others if each not in [value for value, _ in found]], found)
            self._note(name, value, before, found)

    def _try(self, name: str, others: Sequence[Any], found: list[tuple[Any, Facts]]) -> None:
        """Adds the first value that the constructor takes, with the facts then."""
        for other in others:
            try:
                found.append((other, facts(self.instance({name: other}, self.device))))
            except Exception:  # theirs to refuse: sizes that do not divide, probabilities above 1
                continue
            return

    def _note(self, name: str, old: Any, before: Facts, found: list[tuple[Any, Facts]]) -> None:
        """Compares the facts with one argument at an old and at other values. A fact is an argument if it is that at
        all of them: `max(size, 8)` and `(size + 7) // 8 * 8` are the size at some."""
        old = tuple(old) if isinstance(old, list) else old
        moved = {
            fact for _, after in found for fact in before.keys() | after.keys() if before.get(fact) != after.get(fact)
        }
        needed = 1 if isinstance(old, tuple) else _AGREE
        same = set()
        if len(found) >= needed:
            same = {each for each in moved if before.get(each) == old and all(a.get(each) == v for v, a in found)}
        if isinstance(old, tuple):
            tensors = {fact.removesuffix(".shape") for fact in same if fact.endswith(".shape")}
            norms = {f"{tensor.rpartition('.')[0]}.normalized_shape" for tensor in tensors}
            moved = {fact for fact in moved if fact.partition("[")[0] not in tensors | norms}
        else:
            moved = {fact for fact in moved if not fact.endswith(".shape")}
        for fact in moved:
            self._note_multiple(fact, name, [(old, before), *found])
            if fact in same and fact not in self.follows:
                self.follows[fact] = name
            else:
                self.follows.pop(fact, None)
                self.derived.setdefault(name, set()).add(fact)

    def _note_multiple(self, fact: str, name: str, found: list[tuple[Any, Facts]]) -> None:
        """Notes a fact that is a whole number of times the argument, always the same one."""
        values = [(value, facts.get(fact)) for value, facts in found]
        numbers = all(type(value) is int and value > 0 and type(each) is int for value, each in values)
        times = {each // value if each % value == 0 else 0 for value, each in values} if numbers else set()
        one = fact not in self.multiples and len(times) == 1 and len(found) > _AGREE
        self.multiples[fact] = (times.pop(), name) if one else (0, "")


def alternatives(value: Any) -> list[list[Any]]:
    """Other values of the type of `value`, in groups of which one value each is to be tried: larger, smaller and
    unlike `value`."""
    if isinstance(value, tuple | list) and value and all(isinstance(each, int) for each in value):
        return [[tuple(each * 2 if each > 1 else 3 for each in value)]]
    if isinstance(value, int) and not isinstance(value, bool):
        if value == 0:
            return [[1], [2], [3]]
        smaller = [
            each for each in dict.fromkeys((value - 1, value // 2, value // 3, value // 4, 1)) if 0 < each < value
        ]
        return [[value + 1, value * 2, value * 3, value * 4], smaller, [value * 2, value * 3, value * 4, value * 6]]
    if isinstance(value, float):
        return [[value * 1.25 + 0.0625, value * 1.5], [value * 0.75, value / 2], [value / 64 + 0.03125, -value]]
    return []


def changed(value: Any) -> Iterator[Any]:
    """Other values of the same kind to try, until one is taken."""
    yield from dict.fromkeys(each for group in alternatives(value) for each in group)
