"""What a call of a module leaves behind besides its buffers, which a chain has not: attributes and random numbers."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fusegen.errors import SpecError
from fusegen.importing.checks.dropout_pattern import DropsByPattern
from fusegen.importing.traces.source_locations import of_error, refusal
from fusegen.importing.traces.trace import forward_of

# Objects within objects that are looked into.
_DEPTH = 6
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_NO_STATE = "the same call of a chain always gives the same; its only state are the running statistics of batch norms"


def check_state(module: nn.Module, inputs: Sequence[Tensor]) -> None:
    """Raises SpecError where a call in training or evaluation changes a copy of the module, or the next gives another
    result."""
    try:
        copied = copy.deepcopy(module)
    except Exception as error:
        message = f"the module cannot be copied: {type(error).__name__}: {error}"
        raise refusal("FG701", message[:300], None, "it is compared as a copy") from None
    for training in (True, False):
        copied.train(training)
        try:
            with unchanged(copied), DropsByPattern():
                first, second = (tree_leaves(copied(*inputs)) for _ in range(2))
        except SpecError:
            raise
        except Exception as error:
            message = f"the module raises {type(error).__name__}: {error}"
            raise refusal("FG701", message[:300], of_error(error)) from None
        if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, second, strict=True)):
            message = "the same call of forward gives another result the next time"
            raise refusal("FG711", message, forward_of(module), _NO_STATE)


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Raises SpecError where a call changes attributes, or draws random numbers."""
    drawn, before = _random(), _attributes(module)
    yield
    if _random() != drawn:
        raise refusal("FG711", "forward draws random numbers", forward_of(module), _NO_STATE)
    after = _attributes(module)
    for path, name in {**before, **after}:
        if before.get((path, name)) != after.get((path, name)):
            what = f"forward changes the attribute '{f'{path}.{name}' if path else name}'"
            raise refusal("FG711", what, forward_of(module.get_submodule(path)), _NO_STATE)


def _random() -> list[Any]:
    states: list[Any] = [torch.random.get_rng_state().numpy().tobytes(), random.getstate()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _, keys, *more = numpy.random.get_state()
        states += [keys.tobytes(), more]
    return states


def _attributes(module: nn.Module) -> dict[tuple[str, str], Any]:
    """What each attribute holds. Gradients and the values of buffers may change."""
    parts = list(module.named_modules())
    return {(path, name): _held(value, _DEPTH) for path, part in parts for name, value in vars(part).items()}


@dataclass(frozen=True)
class _Same:
    """An object that nothing else is equal to."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _held(value: Any, depth: int) -> Any:
    if isinstance(value, _PLAIN):
        return type(value), repr(value)
    if not depth or isinstance(value, Tensor | nn.Module | type):
        return _Same(value)
    if isinstance(value, dict):
        return _Same(value), tuple((_held(key, depth - 1), _held(each, depth - 1)) for key, each in value.items())
    if isinstance(value, tuple):
        return tuple(_held(each, depth - 1) for each in value)
    if isinstance(value, list | set | frozenset):
        return _Same(value), tuple(_held(each, depth - 1) for each in value)
    if hasattr(value, "tobytes"):
        return _Same(value), value.tobytes()
    inner = vars(value) if hasattr(value, "__dict__") and not callable(value) else {}
    return _Same(value), tuple((name, _held(each, depth - 1)) for name, each in inner.items())
