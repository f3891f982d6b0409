"""torch.library.opcheck for every op call that a module makes, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.runs.run import draw_gradient, run


class _Recorder(TorchDispatchMode):
    """Keeps the arguments of the first call of each of fusegen's ops, as they were before the call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Any, tuple] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.namespace == "fusegen" and func not in self.calls:
            self.calls[func] = tuple(a.detach().clone() if isinstance(a, Tensor) else a for a in args)
        return func(*args, **(kwargs or {}))


def opcheck(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """Schema, fake tensors, autograd registration and AOT dispatch of every op.

    With tensors that want no gradient: opcheck calls an op several times, and not through the module.
    """
    recorder = _Recorder()
    for train in (True, False):
        grad_output = draw_gradient(original, inputs, train=train)
        with recorder:
            run(fused, inputs, grad_output, train=train)
    if not recorder.calls:
        return [Comparison.statement("opcheck", False, "the module calls no op of fusegen's")]
    return [_checked(op, args) for op, args in recorder.calls.items()]


def _checked(op: Any, args: tuple) -> Comparison:
    # Without the digest of the sources at its end.
    name = f"opcheck {op._schema.name.removeprefix('fusegen::').rpartition('_')[0]}"
    results = torch.library.opcheck(op, _without_nan(op, args), raise_exception=False)
    failed = {test: outcome for test, outcome in results.items() if outcome != "SUCCESS"}
    return Comparison.statement(name, not failed, "; ".join(f"{test}: {why}" for test, why in failed.items())[:300])


def _without_nan(op: Any, args: tuple) -> tuple:
    """The same arguments, or larger values of them where a result has a NaN: opcheck takes that for another result.
    The pieces of a matrix are float16, and have the exponents of its rows among them: bits that, negative, are one."""
    with torch.no_grad():
        results = op(*args)
    results = results if isinstance(results, tuple | list) else [results]
    if not any(bool(torch.isnan(each).any()) for each in results if isinstance(each, Tensor)):
        return args
    return tuple(a.abs() + 1 if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)
