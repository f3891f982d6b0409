"""Every gradient against finite differences, on the double precision build of the same kernels.

Finite differences see through a detach: what is detached moves with the value that is varied. So a chain with one is
differenced in PyTorch's operators, with what is detached held as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError
from torch.overrides import TorchFunctionMode

from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.runs.dropout_replay import seeded
from fusegen.verify.runs.run import input_name, leaves, undisturbed

Function = Callable[[Tensor], Tensor]


@contextlib.contextmanager
def double_precision(generated: Any) -> Iterator[None]:
    """Lets the module of a package take float64, whose kernels only verification builds have."""
    package = generated._package
    plain = package.plain_modes
    key = tuple(torch.float64 for _ in next(iter(plain or package.autocast_modes)))
    package.plain_modes = plain | {key: len(package.dtypes) - 1}
    try:
        yield
    finally:
        package.plain_modes = plain


class _Detached(TorchFunctionMode):
    """Keeps what is detached while `recording`, and later gives the same in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self.recording, self.values, self.given = True, list[Tensor](), 0

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is not Tensor.detach:
            return func(*args, **(kwargs or {}))
        if self.recording:
            self.values.append(args[0].detach().clone())
            return self.values[-1]
        self.given += 1
        return self.values[(self.given - 1) % len(self.values)]


def _with_detached_held(fused: Function, original: Function, at: Tensor) -> Function:
    """The original's values, with what it detaches as it is at one point, and the gradient of `fused` there."""
    held = _Detached()
    with held, torch.no_grad():
        original(at)
    held.recording = False

    class Held(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Tensor) -> Tensor:
            ctx.save_for_backward(value)
            with held:
                return original(value)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            with torch.enable_grad():
                value = ctx.saved_tensors[0].detach().requires_grad_()
                result = fused(value)
            found = None
            if result.requires_grad:
                (found,) = torch.autograd.grad(result, value, grad, allow_unused=True)
            return torch.zeros_like(value) if found is None else found

    return Held.apply


def gradcheck(
    packages: Sequence[ModuleType], fused: nn.Module, inputs: Sequence[Tensor], original: nn.Module | None = None
) -> list[Comparison]:
    """torch.autograd.gradcheck of the output by each input and parameter, in train and eval.

    packages: those that have kernels. fused, inputs: in float64. original: the chain in PyTorch's operators, in float64
    and with the same state, where the chain detaches something. Central differences of 1e-6 leave about 1e-9; kinks are
    so far apart that random data does not meet one.
    """
    results = []
    with contextlib.ExitStack() as stack:
        for package in packages:
            stack.enter_context(double_precision(package))
        for train in (True, False):
            given = {input_name(index): x for index, x in enumerate(leaves(inputs))}
            given |= {name: p for name, p in fused.named_parameters() if p.requires_grad}
            for name in (name for name, value in given.items() if value.requires_grad):
                label = f"gradcheck {name}, {'train' if train else 'eval'}"
                results.append(Comparison.statement(label, *_checked(fused, original, given, name, train, len(inputs))))
    return results


def _checked(
    fused: nn.Module, original: nn.Module | None, given: dict[str, Tensor], name: str, train: bool, count: int
) -> tuple[bool, str]:
    fixed = list(given.values())[:count]
    index = list(given).index(name)

    def output(module: nn.Module) -> Function:
        def call(value: Tensor) -> Tensor:
            inputs = [value if position == index else x.detach() for position, x in enumerate(fixed)]
            replaced = {} if index < count else {name: value}
            with seeded(module, at):
                return torch.func.functional_call(module, replaced, tuple(inputs))

        return call

    at = given[name].detach().clone()
    with undisturbed(fused), undisturbed(original or fused):
        function = output(fused.train(train))
        if original is not None:
            function = _with_detached_held(function, output(original.train(train)), at)
        try:
            torch.autograd.gradcheck(function, at.requires_grad_(), eps=1e-6, atol=1e-6, rtol=1e-5, nondet_tol=0.0)
        except GradcheckError as error:
            return False, " ".join(str(error).split())[:200]
    return True, ""
