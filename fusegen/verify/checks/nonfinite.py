"""NaN and infinity have to go where eager sends them, and nowhere else.

Only on a CUDA device: eager's CPU kernels have conventions of their own, which change with the vector width
(the gelu of -inf is NaN or 0, by where in a row it stands).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fusegen.verify.checks.behaviour import summed_up
from fusegen.verify.checks.compared import compare_module
from fusegen.verify.judgement.policy import Comparison, same_special_values
from fusegen.verify.runs.run import draw_gradient, run, wanting

_VALUES = {"NaN": math.nan, "+inf": math.inf, "-inf": -math.inf}


def nonfinite(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """One such value in each input, or in the incoming gradient, in train and eval.

    The output has the same NaN and the same infinities. Gradients and buffers are finite at the same places: whether
    sums of infinities come out as NaN depends on the order in which terms are taken together.
    """
    if inputs[0].device.type != "cuda":
        return []
    results = []
    for train in (True, False):
        clean = draw_gradient(original, inputs, train=train)
        for name, value in _VALUES.items():
            for index in range(len(inputs) + 1):
                if index < len(inputs) and not inputs[index].is_floating_point():
                    continue
                given, grad_output = [x.detach().clone() for x in inputs], clean.clone()
                place = [*given, grad_output][index]
                place[_middle(place)] = value
                where = "gradient" if index == len(inputs) else f"input {index + 1}"
                wrong = _differences(fused, original, [wanting(x) for x in given], grad_output, train)
                label = f"{name} in {where}, {'train' if train else 'eval'}"
                results.append(Comparison.statement(label, not wrong, ", ".join(wrong)))
    return results


def _middle(place: Tensor) -> tuple[int, ...]:
    """An element amid a tensor of any number of dimensions."""
    return tuple(size // (3 if index == 1 else 2) for index, size in enumerate(place.shape))


def constant_inputs(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """Inputs of nothing but zeros, and of nothing but ones: variances of zero, ties in every comparison.

    Statistics of the batch are then rounding noise over the root of eps, in eager too, so in training no more is asked
    than finite values where eager has them.
    """
    results = []
    for value in (0.0, 1.0):
        given = [wanting(torch.full_like(x, value)) for x in inputs]
        label = f"inputs of {value:g} alone"
        wrong = _differences(fused, original, given, draw_gradient(original, given), train=True)
        results.append(Comparison.statement(f"{label}, train", not wrong, ", ".join(wrong)))
        results += summed_up(f"{label}, eval", compare_module(fused, original, given, train=False))
    return results


def _differences(
    fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor], grad_output: Tensor, train: bool
) -> list[str]:
    """What is finite in one of the two results and not in the other."""
    mine, theirs = (run(module, inputs, grad_output, train=train) for module in (fused, original))
    wrong = [] if same_special_values(mine.output, theirs.output) else ["output"]
    for kind in ("gradients", "buffers"):
        for name, value in getattr(theirs, kind).items():
            other = getattr(mine, kind)[name]
            if value is not None and not torch.equal(torch.isfinite(value), torch.isfinite(other)):
                wrong.append(name)
    return wrong
