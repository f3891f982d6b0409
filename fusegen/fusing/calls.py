"""What each submodule of a model is called with, seen in one run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.eval_frame import OptimizedModule
from torch.utils._python_dispatch import TorchDispatchMode

from fusegen.importing.places import of_error, refusal
from fusegen.ops.catalogue import STEPS

OPS = frozenset(op for step in STEPS for op in step.ops())


@dataclass
class Calls:
    """Of one module. inputs: of its first call, in the order of forward's arguments. forms: the shapes and dtypes of
    all calls. odd: why a call is none of tensors to one tensor; empty if each is. ops: those of a chain that its
    forward runs itself, not in submodules."""

    inputs: tuple[Tensor, ...] = ()
    forms: set[tuple[tuple[tuple[int, ...], torch.dtype], ...]] = field(default_factory=set)
    odd: str = ""
    ops: dict[str, None] = field(default_factory=dict)


def record(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], closed: Callable[[nn.Module], bool]
) -> dict[nn.Module, Calls]:
    """The calls of all submodules in `model(*args, **kwargs)`, in evaluation and without gradients.

    closed: whether nobody wants to know of the parts of a module. The model's mode, buffers and the random state stay
    as they are. Raises SpecError with the line that fails.
    """
    if any(isinstance(module, OptimizedModule) for module in model.modules()):
        raise refusal("FG701", "the model is compiled already: fuse before torch.compile", None)
    found: dict[nn.Module, Calls] = {}
    running: list[nn.Module] = []

    def enter(module: nn.Module, args: tuple[Any, ...]) -> None:
        running.append(module)
        found.setdefault(module, Calls())

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        running.pop()
        calls = found[module]
        inputs = positional(type(module), args, kwargs)
        if inputs is None or not inputs or not all(isinstance(x, Tensor) for x in inputs):
            calls.odd = calls.odd or "it is called with something else than tensors"
        elif not isinstance(result, Tensor):
            calls.odd = calls.odd or f"it returns a {type(result).__name__}, and a chain one tensor"
        else:
            calls.inputs = calls.inputs or tuple(x.detach() for x in inputs)
            calls.forms.add(tuple((tuple(x.shape), x.dtype) for x in inputs))

    devices = {tensor.device.index for tensor in model.parameters() if tensor.is_cuda}
    with _as_it_was(model), torch.random.fork_rng(devices=sorted(devices)), torch.no_grad(), ExitStack() as hooks:
        for module in _open(model, closed):
            hooks.callback(module.register_forward_pre_hook(enter).remove)
            hooks.callback(module.register_forward_hook(note, with_kwargs=True).remove)
        try:
            with _Operators(lambda op: running and found[running[-1]].ops.setdefault(op)):
                model.eval()(*args, **kwargs)
        except Exception as error:
            message = f"the model does not run with these inputs: {type(error).__name__}: {error}"
            raise refusal("FG701", message[:300], of_error(error)) from None
    return found


def positional(kind: type[nn.Module], args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """The arguments of a call in forward's order, without those at the end that are the defaults; None if they have no
    order."""
    if not kwargs and all(isinstance(each, Tensor) for each in args):
        return tuple(args)
    signature = _signature(kind.forward)
    try:
        given = signature.bind(None, *args, **kwargs).arguments
    except TypeError:
        return None
    named = list(signature.parameters.values())[1:]
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in named):
        return None
    found = [given.get(each.name, each.default) for each in named]
    while found and found[-1] is named[len(found) - 1].default:
        found.pop()
    return tuple(found)


class _Operators(TorchDispatchMode):
    """Tells of each op of a chain that an operator is."""

    def __init__(self, tell: Callable[[str], Any]) -> None:
        super().__init__()
        self.tell = tell

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.strip("_")
        if name in OPS:
            self.tell(name)
        return func(*args, **(kwargs or {}))


def _open(module: nn.Module, closed: Callable[[nn.Module], bool]) -> Iterator[nn.Module]:
    if not closed(module):
        yield module
        for part in module.children():
            yield from _open(part, closed)


@functools.lru_cache(maxsize=256)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Modes, buffers and attributes of the model are put back behind."""
    modes = [(module, module.training) for module in model.modules()]
    own = [(module, type(module), dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for module, kind, attributes, held in own:
            # A lazy one now has its sizes, and one of torch.jit keeps its attributes elsewhere.
            if type(module) is not kind or isinstance(module, torch.jit.ScriptModule):
                continue
            for name in vars(module).keys() - attributes:
                del vars(module)[name]
            vars(module).update(attributes)
            module._buffers.clear()
            module._buffers.update(held)
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
