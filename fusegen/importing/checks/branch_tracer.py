"""What a module decides by its numbers and sizes, which no trace shows: `if slope > 0.5`, `max(eps, 1e-6)`.

The numbers note when they are compared. Each comparison is then turned round: where that does not only lead to an error
that the module raises, the module is another one for other numbers.
"""

from __future__ import annotations

import dis
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fusegen.importing.traces.source_locations import is_theirs

# Comparisons that are looked into.
_MOST = 48
_ARITHMETIC = "add sub mul truediv floordiv mod pow".split()
_OF_ONE = ("__neg__", "__pos__", "__abs__", "__round__", "__floor__", "__ceil__", "__trunc__")
_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")


class BranchTracer:
    """Records the comparisons of one run with traced numbers. seen: for each comparison, in order, the names of the
    numbers in it. inverted: the index of the comparison whose outcome is inverted."""

    def __init__(self, inverted: int | None = None) -> None:
        self.inverted = inverted
        self.seen: list[frozenset[str]] = []
        self.looked_up: set[str] = set()

    def number(self, name: str, value: Any) -> Any:
        """A float or an int that is watched."""
        return _number(value, frozenset({name}), self)

    def decide(self, names: frozenset[str], outcome: bool) -> bool:
        self.seen.append(names)
        return outcome != (len(self.seen) - 1 == self.inverted)


class TracedSizes(TorchFunctionMode):
    """While active, sizes of tensors that the user's code asks for are watched. names: of sizes that are arguments."""

    def __init__(self, tracer: BranchTracer, names: Mapping[int, frozenset[str]]) -> None:
        super().__init__()
        self.tracer, self.names = tracer, names

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        found = func(*args, **(kwargs or {}))
        asked = func in (torch.Tensor.size, torch.Tensor.shape.__get__)  # type: ignore[attr-defined]
        if not asked or not is_theirs(sys._getframe(1).f_code.co_filename):
            return found
        return self._watched(found) if isinstance(found, int) else _Sizes(map(self._watched, found))

    def _watched(self, size: int) -> Any:
        return _number(size, self.names[size], self.tracer) if size in self.names else size


class _Sizes(tuple):
    """In place of a torch.Size."""

    def numel(self) -> Any:
        return math.prod(self)


def decided(attempt: Callable[[BranchTracer], object], names: set[str]) -> set[str]:
    """The names of numbers by which a module decides what it computes. attempt: makes and runs it with watched numbers.

    All of them where that cannot be seen.
    """
    tracer = BranchTracer()
    try:
        attempt(tracer)
    except Exception:  # numbers of this kind are not taken
        return names
    found = set(tracer.looked_up)
    for index, about in enumerate(tracer.seen):
        if not about <= found and (index >= _MOST or _matters(attempt, index)):
            found |= about
    return found


def _matters(attempt: Callable[[BranchTracer], object], index: int) -> bool:
    try:
        attempt(BranchTracer(index))
    except Exception as error:
        return not _is_raised_by_them(error)
    return True


def _is_raised_by_them(error: Exception) -> bool:
    """Whether a `raise` or an `assert` of the user's code is where an error comes from."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not is_theirs(trace.tb_frame.f_code.co_filename):
        return False
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


def _number(value: Any, names: frozenset[str], tracer: BranchTracer) -> Any:
    made = (_Int if isinstance(value, int) else _Float)(value)
    made.names, made.tracer = names, tracer
    return made


def _of_result(self: Any, result: Any, *others: Any) -> Any:
    if isinstance(result, bool) or not isinstance(result, int | float):
        return result
    names = self.names.union(*(getattr(other, "names", ()) for other in others))
    return _number(result, names, self.tracer)


def _arithmetic(base: type, name: str) -> Callable[..., Any]:
    def method(self: Any, *others: Any) -> Any:
        result = getattr(base, name)(self, *others)
        if result is NotImplemented and base is int and all(isinstance(other, float) for other in others):
            result = getattr(float, name)(float(self), *others)
        return _of_result(self, result, *others)

    return method


def _comparison(base: type, name: str) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        result = getattr(base, name)(self, other)
        if result is NotImplemented or not is_theirs(sys._getframe(1).f_code.co_filename):
            return result
        return self.tracer.decide(self.names | getattr(other, "names", frozenset()), result)

    return method


def _truth(base: type) -> Callable[..., bool]:
    def method(self: Any) -> bool:
        outcome = bool(base(self))
        return self.tracer.decide(self.names, outcome) if is_theirs(sys._getframe(1).f_code.co_filename) else outcome

    return method


def _hash(base: Any) -> Callable[..., int]:
    def method(self: Any) -> int:
        if is_theirs(sys._getframe(1).f_code.co_filename):
            self.tracer.looked_up |= self.names
        return base.__hash__(self)

    return method


def _traced(base: type) -> Any:
    """A class of numbers that are used as those of `base`."""
    both = [f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r")]
    one = [name for name in _OF_ONE if hasattr(base, name)]
    methods: dict[str, Any] = {name: _arithmetic(base, name) for name in (*both, *one)}
    methods |= {name: _comparison(base, name) for name in _COMPARISONS}
    methods |= {"__bool__": _truth(base), "__hash__": _hash(base)}
    methods |= {"__deepcopy__": lambda self, memo: self, "__copy__": lambda self: self}
    return type(f"Watched{base.__name__.capitalize()}", (base,), methods)


_Float, _Int = _traced(float), _traced(int)
