"""Inputs [..., channels]: a module takes them where PyTorch's chain does the same as on the view [rows, channels], with
the values that it has there, and refuses them elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.verify.checks.behaviour import bitwise_equal, summed_up
from fusegen.verify.checks.compared import compare_runs
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.references.reference import reference
from fusegen.verify.runs.dropout_replay import draws_samples, samples_of
from fusegen.verify.runs.run import Run, draw_gradient, drawn_like, has_batch, input_name, run, wanting


def leading_dimensions(
    fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor], *, free_rows: bool = True, trailing: int = 1
) -> list[Comparison]:
    """Three dimensions, of which the second is the rows of `inputs`, and one.

    A tensor that has the rows as its own dimension is broadcast then, so that it cannot pass for one without rows.
    free_rows: whether the spec allows any number of rows; if it does not, other dimensions are refused. trailing: how
    many of the last dimensions are the channels.
    """
    found, with_rows = [], [has_batch(x, inputs[0]) for x in inputs]
    for sizes in ((2, inputs[0].shape[0]), ()):
        given = [_drawn(x, sizes, trailing) if of_rows else x for x, of_rows in zip(inputs, with_rows, strict=True)]
        count = len(sizes) + trailing
        label = f"{count} dimensions" if count > 1 else "1 dimension"
        if free_rows and _acts_on_rows(original, given, with_rows, trailing):
            found += summed_up(label, _compared(fused, original, given, with_rows, trailing))
        else:
            found.append(_refused(f"{label} refused", fused, given))
    return found


def _drawn(x: Tensor, sizes: Sequence[int], trailing: int) -> Tensor:
    """An input with other dimensions of rows."""
    return wanting(drawn_like(x.detach().new_empty((*sizes, *x.shape[-trailing:]))), x.requires_grad)


def _rows(x: Tensor, trailing: int) -> Tensor:
    """A leaf with the same values as [rows, channels]."""
    return wanting(x.detach().reshape(-1, *x.shape[x.dim() - trailing :]), x.requires_grad)


def _on_rows(given: Sequence[Tensor], with_rows: Sequence[bool], trailing: int) -> list[Tensor]:
    """The views of inputs; those that have no rows as they are."""
    return [_rows(x, trailing) if of_rows else x for x, of_rows in zip(given, with_rows, strict=True)]


def _exact(x: Tensor) -> Tensor:
    return x.detach().double() if x.is_floating_point() else x


def _sample_rows(given: Sequence[Tensor], trailing: int) -> int:
    """How many rows an index of the first dimension has."""
    return given[0].shape[1:-trailing].numel()


def _acts_on_rows(original: nn.Module, given: Sequence[Tensor], with_rows: Sequence[bool], trailing: int) -> bool:
    """Whether PyTorch's chain does the same as on the view, in double precision and in training.

    A dropout of samples draws for the first dimension: of one dimension these are the channels, or what is left of
    them.
    """
    if given[0].ndim == trailing and draws_samples(original):
        return False
    exact = copy.deepcopy(original).double().train()
    results = []
    with torch.no_grad():
        on_rows = _on_rows(given, with_rows, trailing)
        for inputs, rows in ((given, 1), (on_rows, _sample_rows(given, trailing))):
            try:
                with samples_of(exact, rows):
                    results.append(exact(*map(_exact, inputs)))
            except (ValueError, RuntimeError, IndexError) as problem:
                if "CUDA" in str(problem):
                    raise
                return False
    result, expected = results
    if result.shape != (*given[0].shape[:-trailing], *expected.shape[1:]):
        return False
    return torch.allclose(result.reshape(expected.shape), expected, rtol=1e-9, atol=1e-9)


def _compared(
    fused: nn.Module, original: nn.Module, given: Sequence[Tensor], with_rows: Sequence[bool], trailing: int
) -> list[Comparison]:
    """The module beside the original and beside itself on the view, where the kernels run if they do on the view."""
    on_rows = _on_rows(given, with_rows, trailing)
    grad = draw_gradient(original, on_rows)
    shape = (*given[0].shape[:-trailing], *grad.shape[1:])
    came = run(fused, given, None).output.shape
    if came != shape:
        return [Comparison.statement("shape", False, f"{list(came)}, eager {list(shape)}")]
    mine, eager = (_flatten(run(module, given, grad.view(shape)), on_rows, grad) for module in (fused, original))
    with samples_of(original, _sample_rows(given, trailing)):
        exact = reference(original, on_rows, grad)
    found = compare_runs(mine, eager, exact, given[0].dtype)
    if not draws_samples(original):
        found.append(bitwise_equal(mine, run(fused, on_rows, grad), "the bits of the view"))
    kernels: Any = fused.fusegen_kernels
    use, on_view = kernels(*given), kernels(*on_rows)
    return [*found, Comparison.statement("kernels as on the view", bool(use) == bool(on_view), use.reason)]


def _flatten(one: Run, on_rows: Sequence[Tensor], like: Tensor) -> Run:
    """The run as one on the views of its inputs. like: has the shape of the result there."""
    found = {input_name(index): one.gradients[input_name(index)] for index in range(len(on_rows))}
    shapes = {input_name(index): x.shape for index, x in enumerate(on_rows)}
    flat: dict[str, Tensor | None] = {
        name: grad.detach().reshape(shapes[name]) for name, grad in found.items() if grad is not None
    }
    return Run(one.output.reshape(like.shape), one.gradients | flat, one.buffers)


def _refused(name: str, fused: nn.Module, given: Sequence[Tensor]) -> Comparison:
    try:
        run(fused, given, None)
    except ValueError:
        return Comparison.statement(name, True)
    except Exception as other:
        return Comparison.statement(name, False, f"raises {type(other).__name__}: {other}"[:300])
    return Comparison.statement(name, False, "is taken, where PyTorch's chain does not act on each row alone")
