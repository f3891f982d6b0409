"""A fused module beside its original through a few optimiser steps, against double precision."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fusegen.verify.checks.compared import compare_buffers, same_state
from fusegen.verify.judgement.policy import Comparison, compare
from fusegen.verify.judgement.rerun_judgement import ulp_away
from fusegen.verify.references.reference import exact_pass
from fusegen.verify.runs.dropout_replay import replays, seeded
from fusegen.verify.runs.run import autocast, channel_dim, draw_gradient, has_batch, row_count

REORDERED_RUNS = 8


def compare_steps(
    fused: nn.Module,
    original: nn.Module,
    batches: Sequence[Sequence[Tensor]],
    *,
    autocast_dtype: torch.dtype | None = None,
    learning_rate: float = 1e-2,
    momentum: float = 0.9,
    seed: int = 0,
) -> list[Comparison]:
    """Train both, and a double precision copy, with SGD for one step per batch of inputs; compare after each step.

    Parameters are compared by how far they have moved, since an error in the gradient disappears beside
    their own size. Both modules are trained in place.

    A training run amplifies rounding: one element that falls on the other side of a kink, or one scale that changes its
    sign, outweighs everything else, in eager as in any other correct implementation, and where it happens is
    chance. Eager's
    error is therefore the worst of several runs that differ by rounding alone: the original, and copies of it that see
    each batch with its rows in another order and its values an ulp up or down.
    """
    if not same_state(fused, original):
        return [Comparison.statement("state_dict", False, "the modules do not hold the same state to start from")]
    exact = copy.deepcopy(original).double()
    start = {name: p.detach().clone() for name, p in original.named_parameters()}
    device, batch = batches[0][0].device, batches[0][0].shape[0]
    generator = torch.Generator(device).manual_seed(seed)
    orders = [torch.randperm(batch, generator=generator, device=device) for _ in range(REORDERED_RUNS)]
    if replays(original):  # what is dropped has a place
        orders = [torch.arange(batch, device=device)] * REORDERED_RUNS
    reordered = [copy.deepcopy(original) for _ in orders]
    modules = [fused.train(), original.train(), exact.train(), *(module.train() for module in reordered)]
    optimisers = [
        torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=learning_rate, momentum=momentum)
        for m in modules
    ]
    velocity: dict[str, Tensor] = {}
    moved: dict[str, Tensor] = {}
    results = []
    for step, inputs in enumerate(batches):
        # One over the root of the rows keeps the gradient's size independent of the batch.
        grad_output = draw_gradient(original, inputs, autocast_dtype=autocast_dtype, seed=seed + step)
        rows = row_count(grad_output, channel_dim(original), batches[0][0].ndim)
        grad_output = grad_output / rows**0.5
        dtype = autocast_dtype or inputs[0].dtype
        plain = [x.detach() for x in inputs]
        runs: list[tuple[nn.Module, Tensor | slice, list[Tensor]]]
        runs = [(fused, slice(None), plain), (original, slice(None), plain)]
        for module, other in zip(reordered, orders, strict=True):
            runs.append((module, other, [ulp_away(x, torch.finfo(dtype).eps, generator) for x in plain]))
        for module, order, given in runs:
            module.train().zero_grad(set_to_none=True)
            with autocast(module, inputs, autocast_dtype), seeded(module, inputs[0]):
                output = module(*(x[order] if has_batch(x, given[0]) else x for x in given))
            grad = grad_output[_of_rows(fused, order)] if grad_output.dim() else grad_output
            output.backward(grad.to(output.dtype))
        terms = exact_pass(exact, plain, grad_output).terms
        for optimiser in optimisers:
            optimiser.step()
        for name, size in terms.items():
            velocity[name] = momentum * velocity[name] + size if name in velocity else size
            moved[name] = moved.get(name, 0.0) + learning_rate * velocity[name]
        results += _compare_step(step + 1, modules, start, moved, dtype, rows)
    return results


def _of_rows(fused: nn.Module, order: Tensor | slice) -> tuple[Tensor | slice, ...]:
    """An index of the result's dimension of rows, which may come behind the channels."""
    form: Sequence[object] = getattr(fused, "_fusegen_transposed", ())
    return (*[slice(None)] * (form.index("rows") if form else 0), order)


def _compare_step(
    step: int,
    modules: list[nn.Module],
    start: dict[str, Tensor],
    moved: dict[str, Tensor],
    dtype: torch.dtype,
    rows: int,
) -> list[Comparison]:
    fused, original, exact, *reordered = (dict(m.named_parameters()) for m in modules)
    results = []
    for name, before in start.items():
        before = before.double()
        movement = exact[name].detach() - before
        terms = moved.get(name)
        size = max(float(movement.abs().max()), float(terms.max()) if terms is not None else 0.0)
        results.append(
            compare(
                f"step {step} {name}",
                fused[name].detach().double() - before,
                max(
                    (p[name].detach().double() - before for p in (original, *reordered)),
                    key=lambda moved: float((moved - movement).abs().max()),
                ),
                movement,
                dtype=dtype if fused[name].dtype != torch.float64 else torch.float64,
                reduction_length=rows,
                terms=terms,
                scale=max(1.0, _rounded(before, original[name].dtype, dtype) / size) if size else 1.0,
            )
        )
    of_fused, of_original, of_exact = (dict(m.named_buffers()) for m in modules[:3])
    return results + compare_buffers(of_fused, of_original, of_exact, dtype, rows, prefix=f"step {step} ")


def _rounded(before: Tensor, stored: torch.dtype, dtype: torch.dtype) -> float:
    """The size of the parameter, in ulps of its own dtype rather than of the one that is computed in."""
    return float(before.abs().max()) * torch.finfo(stored).eps / torch.finfo(dtype).eps
