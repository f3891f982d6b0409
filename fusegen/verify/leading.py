"""Inputs [..., channels]: a module takes them where PyTorch's chain does the same as on the view [rows, channels], with
the values that it has there, and refuses them elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fusegen.verify.behaviour import bitwise_equal, summed_up
from fusegen.verify.drawn import draws_samples, samples_of
from fusegen.verify.policy import Comparison
from fusegen.verify.reference import reference
from fusegen.verify.run import Run, draw_gradient, input_name, run
from fusegen.verify.training import compare_runs


def leading_dimensions(
    fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor], *, free_rows: bool = True
) -> list[Comparison]:
    """Three dimensions, of which the second is the rows of `inputs`, and one.

    A tensor that has the rows as its own dimension is broadcast then, so that it cannot pass for one without rows.
    free_rows: whether the spec allows any number of rows; if it does not, other dimensions are refused.
    """
    found = []
    for sizes in ((2, inputs[0].shape[0]), ()):
        given = [
            torch.randn((*sizes, x.shape[-1]), device=x.device, dtype=x.dtype).requires_grad_(x.requires_grad)
            for x in inputs
        ]
        label = f"{len(sizes) + 1} dimensions" if sizes else "1 dimension"
        if free_rows and _acts_on_rows(original, given):
            found += summed_up(label, _compared(fused, original, given))
        else:
            found.append(_refused(f"{label} refused", fused, given))
    return found


def _rows(x: Tensor) -> Tensor:
    """A leaf with the same values as [rows, channels]."""
    return x.detach().reshape(-1, x.shape[-1]).requires_grad_(x.requires_grad)


def _sample_rows(given: Sequence[Tensor]) -> int:
    """How many rows an index of the first dimension has."""
    return given[0].shape[1:-1].numel()


def _acts_on_rows(original: nn.Module, given: Sequence[Tensor]) -> bool:
    """Whether PyTorch's chain does the same as on the view, in double precision and in training."""
    exact = copy.deepcopy(original).double().train()
    results = []
    with torch.no_grad():
        for inputs, rows in ((given, 1), ([_rows(x) for x in given], _sample_rows(given))):
            try:
                with samples_of(exact, rows):
                    results.append(exact(*(x.detach().double() for x in inputs)))
            except (ValueError, RuntimeError, IndexError) as problem:
                if "CUDA" in str(problem):
                    raise
                return False
    result, expected = results
    if result.shape != (*given[0].shape[:-1], *expected.shape[1:]):
        return False
    return torch.allclose(result.reshape(expected.shape), expected, rtol=1e-9, atol=1e-9)


def _compared(fused: nn.Module, original: nn.Module, given: Sequence[Tensor]) -> list[Comparison]:
    """The module beside the original and beside itself on the view, where the kernels run if they do on the view."""
    on_rows = [_rows(x) for x in given]
    grad = draw_gradient(original, on_rows)
    shape = (*given[0].shape[:-1], *grad.shape[1:])
    came = run(fused, given, None).output.shape
    if came != shape:
        return [Comparison.statement("shape", False, f"{list(came)}, eager {list(shape)}")]
    mine, eager = (_flat(run(module, given, grad.view(shape)), len(given), grad) for module in (fused, original))
    with samples_of(original, _sample_rows(given)):
        exact = reference(original, on_rows, grad)
    found = compare_runs(mine, eager, exact, given[0].dtype)
    if not draws_samples(original):
        found.append(bitwise_equal(mine, run(fused, on_rows, grad), "the bits of the view"))
    use, on_view = fused.fusegen_kernels(*given), fused.fusegen_kernels(*on_rows)
    return [*found, Comparison.statement("kernels as on the view", bool(use) == bool(on_view), use.reason)]


def _flat(one: Run, count: int, like: Tensor) -> Run:
    """The run as one on the views of its inputs, so many of them. like: has the shape of the result there."""
    names = [input_name(index) for index in range(count)]
    flat = {name: _rows(one.gradients[name]) for name in names if one.gradients[name] is not None}
    return Run(one.output.reshape(like.shape), one.gradients | flat, one.buffers)


def _refused(name: str, fused: nn.Module, given: Sequence[Tensor]) -> Comparison:
    try:
        run(fused, given, None)
    except ValueError:
        return Comparison.statement(name, True)
    except Exception as other:
        return Comparison.statement(name, False, f"raises {type(other).__name__}: {other}"[:300])
    return Comparison.statement(name, False, "is taken, where PyTorch's chain does not act on each row alone")
