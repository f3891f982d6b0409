"""The parts of a training step that host_time.py measures: each a call that does one of them again."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

Part = tuple[str, str, Callable[[], Any]]  # subject, part, a call of it
Parts = Iterator[Part]


class Recorder(TorchDispatchMode):
    """Keeps the last call of each of fusegen's ops, with arguments that want no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, tuple] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.namespace == "fusegen":
            self.calls[func] = tuple(a.detach() if isinstance(a, Tensor) else a for a in args)
        return func(*args, **(kwargs or {}))


def steps(subject: str, step: Callable[[], Any]) -> Parts:
    """A step, with the engine in a thread of its own and without."""

    def in_one_thread() -> None:
        with torch.autograd.set_multithreading_enabled(False):
            step()

    yield subject, "step", step
    yield subject, "one thread", in_one_thread


def module_parts(subject: str, module: nn.Module, x: Tensor, grad_output: Tensor) -> Parts:
    """What a user calls."""
    wanted = [x, *module.parameters()]
    module.train()
    kept = module(x)
    yield from steps(subject, lambda: torch.autograd.grad(module(x), wanted, grad_output))
    yield subject, "forward", lambda: module(x)
    yield subject, "grad", lambda: torch.autograd.grad(kept, wanted, grad_output, retain_graph=True)

    evaluated = copy.deepcopy(module).eval()

    def evaluate() -> Tensor:
        with torch.no_grad():
            return evaluated(x)

    yield subject, "eval no_grad", evaluate


def recorded(module: nn.Module, x: Tensor, grad_output: Tensor) -> list[tuple[Any, tuple]]:
    """The module's ops and their arguments, forward and backward."""
    with Recorder() as recorder:
        torch.autograd.grad(module(x), [x, *module.parameters()], grad_output)
    return list(recorder.calls.items())


def op_parts(module: nn.Module, x: Tensor, grad_output: Tensor) -> Parts:
    """The C++ ops, each alone, and both behind a Function that does nothing else."""
    (forward, arguments), (backward, last) = recorded(module, x, grad_output)

    def call_forward() -> None:
        forward(*arguments)

    def call_backward() -> None:
        backward(*last)

    yield "fused", "op forward", call_forward
    yield "fused", "op backward", call_backward
    wanted = [x, *module.parameters()]
    both = bare_function(wanted, grad_output, call_forward, call_backward)
    yield from steps("bare and ops", lambda: torch.autograd.grad(both.apply(*wanted), wanted, grad_output))


def bare_function(
    wanted: Sequence[Tensor],
    grad_output: Tensor,
    in_forward: Callable[[], None] = lambda: None,
    in_backward: Callable[[], None] = lambda: None,
) -> type[torch.autograd.Function]:
    """What autograd itself takes, beside these calls."""
    result = torch.empty_like(grad_output)
    gradients = tuple(torch.empty_like(tensor) for tensor in wanted)

    class Bare(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Tensor:
            in_forward()
            return result.detach()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            in_backward()
            return gradients

    return Bare


def bare_parts(wanted: Sequence[Tensor], grad_output: Tensor) -> Parts:
    """A Function that does nothing."""
    bare = bare_function(wanted, grad_output)
    kept = bare.apply(*wanted)
    yield from steps("bare", lambda: torch.autograd.grad(bare.apply(*wanted), wanted, grad_output))
    yield "bare", "forward", lambda: bare.apply(*wanted)
    yield "bare", "grad", lambda: torch.autograd.grad(kept, wanted, grad_output, retain_graph=True)


@dataclass(frozen=True)
class Calls:
    """The ops of a module as its Function calls them; in evaluation where it has a batch norm."""

    function: type[torch.autograd.Function]
    forward: Any
    backward: Any
    wanted: Sequence[Tensor]
    rest: tuple
    grad_output: Tensor

    @classmethod
    def of(cls, module: nn.Module, x: Tensor, grad_output: Tensor) -> Calls:
        has_batch_norm = any(isinstance(each, nn.BatchNorm1d) for each in module.modules())
        package = sys.modules[type(module).__module__]
        operator = package._eval if has_batch_norm else package._fused
        called = copy.deepcopy(module).train(not has_batch_norm)
        (forward, arguments), (backward, last) = recorded(called, x, grad_output)
        count = len(last[-1])  # `needs`: a flag for each differentiable argument, which come first
        wanted = [tensor.clone().requires_grad_() for tensor in arguments[:count]]
        return cls(operator.function, forward, backward, wanted, arguments[count:], grad_output)

    def parts(self, subject: str, call: Callable[..., Any]) -> Parts:
        """A step and a forward pass by way of this call."""
        arguments = (*self.wanted, *self.rest)
        yield subject, "step", lambda: torch.autograd.grad(call(*arguments), self.wanted, self.grad_output)
        yield subject, "forward", lambda: call(*arguments)


def registered_parts(calls: Calls) -> Parts:
    """register_autograd around the same ops. Run this last: it changes them."""
    forward, backward, count = calls.forward, calls.backward, len(calls.wanted)
    names = [argument.name for argument in forward._schema.arguments]
    returned = [result.name for result in forward._schema.returns]
    needed = [argument.name for argument in backward._schema.arguments][1:-1]

    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        values = dict(zip(names, inputs, strict=True))
        values |= zip(returned, output if isinstance(output, tuple) else (output,), strict=True)
        kept = [values[name] for name in needed]
        ctx.save_for_backward(*(value for value in kept if isinstance(value, Tensor)))
        ctx.scalars = [value for value in kept if not isinstance(value, Tensor)]

    def differentiate(ctx: Any, grad: Tensor, *_: Any) -> tuple:
        needs = ctx.needs_input_grad
        found = iter(backward(grad, *ctx.saved_tensors, *ctx.scalars, needs[:count]))
        return tuple(next(found) if need else None for need in needs)

    torch.library.register_autograd(forward, differentiate, setup_context=setup_context)
    first = (lambda *values: forward(*values)[0]) if len(returned) > 1 else forward
    yield from calls.parts("registered", first)
