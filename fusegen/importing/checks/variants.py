"""Whether a module's calls are the same in other dtypes, on a GPU, under autocast and without gradients.

The module is traced in one of these alone. Here it runs on tensors without data, and what it calls of PyTorch is noted.
On a GPU, as it seems: its tensors say that they are on one.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from fusegen.errors import SpecError
from fusegen.importing.checks.pairs import Pair
from fusegen.importing.traces.source_locations import SourceLine, is_theirs, of_error, refusal
from fusegen.importing.traces.trace import constant_momentum
from fusegen.verify.runs.cuda_autocast import CudaAutocast, autocast_on_cuda

AUTOCAST = "Under autocast its result is of {}, that of the original of {}."
_ONE_CHAIN = "a chain is the same in all dtypes, on all devices and in all modes of PyTorch"


@dataclass(frozen=True)
class Variant:
    """words: of messages. gradients: `None` where the inputs want none."""

    words: str
    dtype: torch.dtype | None = None
    on_gpu: bool = False
    autocast: bool = False
    gradients: bool | None = True
    contiguous: bool = True


# The first is how others are to be. A dtype of None is the module's own.
VARIANTS = (
    Variant("as it is"),
    Variant("in bfloat16", torch.bfloat16),
    Variant("in float16", torch.float16),
    Variant("in float64", torch.float64),
    Variant("without gradients", gradients=False),
    Variant("for inputs that want no gradients", gradients=None),
    Variant("for inputs that are not contiguous", contiguous=False),
    Variant("on a GPU", on_gpu=True),
    Variant("under autocast", on_gpu=True, autocast=True),
)


def check_variants(original: nn.Module, fused: nn.Module, inputs: Sequence[Tensor]) -> list[str]:
    """Remarks for those who read the spec. Raises SpecError where a variant is another chain, or has results of another
    dtype than the spec's module."""
    remarks = []
    theirs, ours = _WithoutData(original, inputs), _WithoutData(fused, inputs)
    for training in (True, False):
        usual: list[Call] = []
        for variant in VARIANTS:
            calls, dtype = theirs.run(variant, training)
            usual = usual or calls
            _check_calls(usual, calls, variant)
            if variant.autocast:
                other = ours.run(variant, training)[1]
                remarks += [AUTOCAST.format(_short(other), _short(dtype))] if other != dtype else []
            elif {*dtype} != {variant.dtype or inputs[0].dtype}:
                message = f"{variant.words}, the result is of {_short(dtype)}"
                raise refusal("FG710", message, calls[-1].place if calls else None, _ONE_CHAIN)
    return list(dict.fromkeys(remarks))


def _short(dtypes: tuple[torch.dtype, ...]) -> str:
    return ", ".join(str(each).removeprefix("torch.") for each in dict.fromkeys(dtypes))


@dataclass(frozen=True)
class Call:
    """what: the function and what it is given besides tensors."""

    what: tuple[Any, ...]
    place: SourceLine | None


def differ_by(one: Pair, other: Pair, numbers: tuple[float, float]) -> bool:
    """Whether the originals of two pairs call the same of PyTorch, but that one has the first of two numbers where the
    other has the second: values at which a bound or a factor does not show do not matter here."""
    both = [_WithoutData(pair.original, pair.given) for pair in (one, other)]
    for training in (True, False):
        try:
            calls = [[each.what for each in module.run(VARIANTS[0], training)[0]] for module in both]
        except SpecError:  # theirs to refuse: a batch norm's eps below zero in training
            continue
        if len(calls[0]) != len(calls[1]) or not all(map(_same_but, *calls, [numbers] * len(calls[0]))):
            return False
    return True


def _same_but(one: tuple[Any, ...], other: tuple[Any, ...], numbers: tuple[float, float]) -> bool:
    pairs = list(zip(one, other, strict=False))
    changed = [[float(text) for _, text in pair] for pair in pairs if pair[0] != pair[1] and _are_numbers(*pair)]
    kept = all(pair[0] == pair[1] or _are_numbers(*pair) for pair in pairs)
    return len(one) == len(other) and kept and all(tuple(each) == numbers for each in changed)


def _are_numbers(*described: Any) -> bool:
    return all(isinstance(each, tuple) and each[0] in ("int", "float") for each in described)


def _check_calls(usual: list[Call], calls: list[Call], variant: Variant) -> None:
    for index in range(max(len(usual), len(calls))):
        one, other = usual[index : index + 1], calls[index : index + 1]
        if [each.what for each in one] != [each.what for each in other]:
            place = (other or one)[0].place
            raise refusal("FG710", f"the module computes something else {variant.words}", place, _ONE_CHAIN)


class _WithoutData:
    """A module and its inputs as tensors that have shapes and dtypes alone."""

    def __init__(self, module: nn.Module, inputs: Sequence[Tensor]) -> None:
        self.module, self.inputs = module, inputs
        self._made: dict[torch.dtype | None, nn.Module] = {}

    def run(self, variant: Variant, training: bool) -> tuple[list[Call], tuple[torch.dtype, ...]]:
        """The calls of one forward, and the dtypes of the results."""
        recorder = _Recorder(variant.on_gpu)
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            if variant.dtype not in self._made:
                self._made[variant.dtype] = self._module(variant.dtype)
            module = self._made[variant.dtype].train(training)
            given = [_fake(x, variant.dtype) for x in self.inputs]
            given = given if variant.contiguous else [x.movedim(-1, 0).contiguous().movedim(0, -1) for x in given]
            given = [x.requires_grad_(variant.gradients is True and x.is_floating_point()) for x in given]
            stack.enter_context(constant_momentum(module))
            stack.enter_context(torch.set_grad_enabled(variant.gradients is not False))
            if variant.autocast:
                stack.enter_context(autocast_on_cuda(torch.bfloat16))
                stack.enter_context(CudaAutocast(torch.bfloat16))
            stack.enter_context(recorder)
            try:
                result = module(*given)
            except Exception as error:
                if not variant.contiguous:  # a view that it cannot take
                    return self.run(VARIANTS[0], training)
                message = f"the module raises {type(error).__name__} {variant.words}: {error}"
                raise refusal("FG710", message.splitlines()[0][:250], of_error(error), _ONE_CHAIN) from None
        return recorder.calls, tuple(each.dtype for each in tree_leaves(result) if isinstance(each, Tensor))

    def _module(self, dtype: torch.dtype | None) -> nn.Module:
        memo: dict[int, Any] = {id(each): _fake(each, dtype) for each in self.module.buffers()}
        for each in self.module.parameters():
            memo[id(each)] = nn.Parameter(_fake(each, dtype), each.requires_grad)
        return copy.deepcopy(self.module, memo)


def _fake(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return torch.empty(x.shape, dtype=dtype if dtype is not None and x.is_floating_point() else x.dtype, device="meta")


class _Recorder(TorchFunctionMode):
    def __init__(self, on_gpu: bool) -> None:
        super().__init__()
        device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
        self.answers = {"is_cuda": on_gpu, "is_cpu": not on_gpu, "is_meta": False, "device": device}
        self.calls: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        place = _user_line()
        self.calls.append(Call((_name(func), *map(_described, tree_flatten((args, kwargs))[0])), place))
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        if attribute in self.answers and func.__name__ == "__get__" and _is_asked_by_them():
            return self.answers[attribute]
        # A tensor that is made where another one is, as they think.
        args, kwargs = tree_map(lambda each: "meta" if each is self.answers["device"] else each, (args, kwargs))
        return func(*args, **kwargs)


def _name(func: Any) -> str:
    """Also of what reads an attribute of a tensor."""
    return f"{getattr(getattr(func, '__self__', None), '__name__', '')}.{getattr(func, '__name__', repr(func))}"


def _described(value: Any) -> Any:
    plain = isinstance(value, str | int | float | complex | slice | type(None) | type(...))
    return (type(value).__name__, repr(value)) if plain else type(value).__name__


def _is_asked_by_them() -> bool:
    return is_theirs(sys._getframe(2).f_code.co_filename)


def _user_line() -> SourceLine | None:
    frame = sys._getframe(2)
    while frame is not None:
        if is_theirs(frame.f_code.co_filename):
            return SourceLine(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None
