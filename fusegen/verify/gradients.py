"""Every gradient against finite differences, on the double precision build of the same kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError

from fusegen.verify.policy import Comparison
from fusegen.verify.run import input_name, leaves, undisturbed


@contextlib.contextmanager
def double_precision(package: ModuleType) -> Iterator[None]:
    """Lets the package's module take float64, whose kernels only verification builds have."""
    plain = package._MODES
    key = tuple(torch.float64 for _ in next(iter(plain)))
    package._MODES = plain | {key: len(package._package.dtypes) - 1}
    try:
        yield
    finally:
        package._MODES = plain


def gradcheck(package: ModuleType, fused: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """torch.autograd.gradcheck of the output by each input and parameter, in train and eval.

    fused, inputs: in float64. Central differences of 1e-6 leave about 1e-9; kinks are so far apart that random data
    does not meet one.
    """
    results = []
    with double_precision(package):
        for train in (True, False):
            given = {input_name(index): x for index, x in enumerate(leaves(inputs))}
            given |= {name: p for name, p in fused.named_parameters() if p.requires_grad}
            for name in given:
                label = f"gradcheck {name}, {'train' if train else 'eval'}"
                results.append(Comparison.statement(label, *_checked(fused, given, name, train, len(inputs))))
    return results


def _checked(fused: nn.Module, given: dict[str, Tensor], name: str, train: bool, count: int) -> tuple[bool, str]:
    fixed = list(given.values())[:count]
    index = list(given).index(name)

    def output(value: Tensor) -> Tensor:
        inputs = [value if position == index else x.detach() for position, x in enumerate(fixed)]
        replaced = {} if index < count else {name: value}
        return torch.func.functional_call(fused, replaced, tuple(inputs))

    with undisturbed(fused):
        fused.train(train)
        try:
            torch.autograd.gradcheck(
                output, given[name].detach().clone().requires_grad_(), eps=1e-6, atol=1e-6, rtol=1e-5, nondet_tol=0.0
            )
        except GradcheckError as error:
            return False, " ".join(str(error).split())[:200]
    return True, ""
