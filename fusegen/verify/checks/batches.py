"""Products for each element of a batch: inputs [..., rows, features], with any number of dimensions in front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.verify.checks.behaviour import summed_up
from fusegen.verify.checks.compared import compare_runs
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.references.reference import Reference, reference
from fusegen.verify.runs.run import Run, draw_gradient, run

_LEADING = ((2, 2), (1,), ())


def batches(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """inputs: of which each is a batch of matrices. Matrices alone are one batch, without its dimension."""
    found = []
    for leading in _LEADING:
        given = [torch.randn((*leading, *x.shape[-2:])).to(x).requires_grad_() for x in inputs]
        label = f"a batch of {list(leading)}" if leading else "matrices"
        grad = draw_gradient(original, given)
        exact = reference(original, given, grad)
        mine, eager = (run(module, given, grad) for module in (fused, original))
        shapes = Comparison.statement(f"{label}: shape", mine.output.shape == eager.output.shape)
        found.append(shapes)
        if shapes.ok:
            flat = Reference(_flatten(exact.run), {name: _rows(x) for name, x in exact.terms.items()}, exact.jumped)
            compared = compare_runs(_flatten(mine), _flatten(eager), flat, given[0].dtype)
            found += summed_up(label, compared)
        kernels: Any = fused.fusegen_kernels
        found.append(Comparison.statement(f"{label}: kernels", bool(kernels(*given))))
    return found


def _flatten(one: Run) -> Run:
    """With each tensor as a matrix."""
    gradients = {name: None if x is None else _rows(x) for name, x in one.gradients.items()}
    return Run(_rows(one.output), gradients, one.buffers)


def _rows(x: Tensor) -> Tensor:
    return x.flatten(0, -2) if x.dim() > 2 else x
