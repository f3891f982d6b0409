"""Whether a row has the same bits alone, in other company and at another place: `invariant: rows`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fusegen.verify.checks.behaviour import same_bits
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.runs.run import Run, has_batch, input_name, run

# Rows that a warp has, a block, shared memory and a cluster; with vectors and without.
SIZES = ((4099, 1000, 1032, 8), (777, 130, 1001, 7), (2500, 64, 20_000, 4), (600, 96, 50_257, 1))


def rows_alone(
    fused: nn.Module, inputs: Sequence[Tensor], counted: Callable[[Tensor], float] | None = None
) -> list[Comparison]:
    """One row, seven, half of them, all but the first, and all in another order, each beside the whole batch: results
    and the gradients of inputs, of what has rows. In a chain of images a row is an image.

    counted: of a mean, how many of the rows of the first input it is of. Its gradient is given as so much, so that a
    row's share is 1 however many there are.
    """
    rows = inputs[0].shape[0]
    generator = torch.Generator().manual_seed(rows)
    order = torch.randperm(rows, generator=generator).to(inputs[0].device)
    selections = {
        "one row": order[:1],
        "seven": order[:7],
        "half": torch.arange(rows // 2, device=order.device),
        "all but the first": torch.arange(1, rows, device=order.device),
        "another order": order,
    }
    grad: Tensor | None = None

    def run_of(chosen: Tensor) -> Run:
        given = [x.detach()[chosen].requires_grad_(x.requires_grad) if has_batch(x, inputs[0]) else x for x in inputs]
        if grad is not None and grad.dim():
            return run(fused, given, grad[chosen])
        return run(fused, given, torch.tensor(float(counted(given[0]) if counted else 1), device=order.device))

    with torch.no_grad():
        result = fused(*inputs)
    if result.dim() and result.shape[0] == rows:
        grad = torch.randn(result.shape, generator=generator).to(result)
    whole, found = run_of(torch.arange(rows, device=order.device)), []
    for label, chosen in selections.items():
        differing = [
            name for name, mine, all_ in _by_row(run_of(chosen), whole, inputs) if not same_bits(mine, all_[chosen])
        ]
        found.append(Comparison.statement(f"{label} as in the batch", not differing, ", ".join(differing)))
    return found


def _by_row(part: Run, whole: Run, inputs: Sequence[Tensor]) -> list[tuple[str, Tensor, Tensor]]:
    """What has rows: its name, and what a part and the whole batch left of it."""
    rows = inputs[0].shape[0]
    found = [("output", part.output, whole.output)] if whole.output.shape[:1] == (rows,) else []
    for index, x in enumerate(inputs):
        name = input_name(index)
        mine, all_ = part.gradients[name], whole.gradients[name]
        if has_batch(x, inputs[0]) and mine is not None and all_ is not None:
            found.append((f"grad {name}", mine, all_))
    return found
