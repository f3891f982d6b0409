"""What a module has to do besides the arithmetic: the same bits twice, any strides, frozen parameters, inputs kept.

Each check returns comparisons, so that they stand in one table with the numerics.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fusegen.verify.checks.compared import compare_module
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.runs.run import Run, draw_gradient, input_name, run, wanting


def poison(*tensors: Tensor) -> None:
    """Fill freed memory of these tensors' sizes with NaN, so that an output left unwritten shows.

    The allocator hands a freed block to the next request of its size: a result that is not written in full
    reads NaN.
    """
    floating = [t for t in tensors if t.is_floating_point()]
    blocks = [torch.full_like(t, float("nan"), requires_grad=False) for t in floating for _ in range(3)]
    small = [torch.full((size,), float("nan"), device=tensors[0].device) for size in (16, 512, 4096, 65536)]
    del blocks, small


def bitwise_equal(first: Run, second: Run, name: str = "two runs bitwise equal") -> Comparison:
    """Whether two runs left the same bits behind."""

    def tensors(one: Run) -> dict[str, Tensor | None]:
        return {"output": one.output} | {f"grad {k}": v for k, v in one.gradients.items()} | one.buffers

    a, b = tensors(first), tensors(second)
    pairs = [(k, x, b[k]) for k, x in a.items()]
    wrong = [k for k, x, y in pairs if (x is not y if x is None or y is None else not same_bits(x, y))]
    return Comparison.statement(name, not wrong, ", ".join(wrong))


def repeated(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """Whether a second forward and backward on the same data gives the same bits, in train and eval."""
    found = []
    for train in (True, False):
        grad_output = draw_gradient(original, inputs, train=train)
        runs = []
        for _ in range(2):
            poison(*inputs, grad_output)
            runs.append(run(fused, inputs, grad_output, train=train))
        found.append(bitwise_equal(runs[0], runs[1], f"two runs bitwise equal, {'train' if train else 'eval'}"))
    return found


def inputs_untouched(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """Whether inputs, incoming gradient and parameters keep their bits through forward and backward."""
    grad_output = draw_gradient(original, inputs)
    watched = {input_name(index): x for index, x in enumerate(inputs)} | {"incoming gradient": grad_output}
    watched |= dict(fused.named_parameters())
    before = {name: t.detach().clone() for name, t in watched.items()}
    run(fused, inputs, grad_output)
    wrong = [name for name, t in watched.items() if not same_bits(before[name], t.detach())]
    return [Comparison.statement("inputs untouched", not wrong, ", ".join(wrong))]


def strides(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """Transposed, sliced and shifted inputs, a transposed gradient and ones expanded from fewer values."""
    dense = draw_gradient(original, inputs)
    layouts = {"transposed inputs": _transposed, "sliced inputs": _sliced, "inputs with an offset": _shifted}
    gradients = (
        {}
        if not dense.dim()
        else {
            "transposed gradient": _transposed(dense),
            "expanded gradient": dense.flatten()[:1].expand(dense.shape),
            "gradient expanded over rows": dense[:1].expand(dense.shape),
        }
    )
    results = []
    for name, layout in layouts.items():
        given = [wanting(layout(x.detach())) for x in inputs]
        results += summed_up(name, compare_module(fused, original, given, grad_output=dense))
    for name, value in gradients.items():
        results += summed_up(name, compare_module(fused, original, inputs, grad_output=value))
    return results


def frozen(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """Each parameter frozen on its own, all but each, and all of them, with inputs that all want a gradient and with
    inputs of which none does; and each input that wants one alone, with no parameter frozen and with all of them. So
    every two tensors are there in all four ways."""
    names = [name for name, _ in original.named_parameters()]
    plans = {f"frozen {name}": {name} for name in names}
    plans |= {f"only {name}": set(names) - {name} for name in names}
    every = set(range(len(inputs)))
    cases = [(label, cold, wanted) for label, cold in plans.items() for wanted in (every, set())]
    alone = [{index} for index in every if len(inputs) > 1]
    cases += [("all frozen", set(names), wanted) for wanted in (every, set(), *alone)]
    cases += [("nothing frozen", set(), wanted) for wanted in alone]
    results = []
    try:
        for label, cold, wanted in cases:
            for module in (fused, original):
                for name, parameter in module.named_parameters():
                    parameter.requires_grad_(name not in cold)
            given = [wanting(x.detach(), index in wanted) for index, x in enumerate(inputs)]
            which = ", ".join(input_name(index) for index in sorted(wanted)) or "no input"
            results += summed_up(f"{label}, gradient of {which}", compare_module(fused, original, given))
    finally:
        for module in (fused, original):
            module.requires_grad_(True)
    return results


def summed_up(label: str, found: list[Comparison]) -> list[Comparison]:
    """What failed, with the label in front; one line for what passed, since there is much of it."""
    failed = [
        Comparison(f"{label}: {item.name}", item.fused, item.eager, item.bound, False, item.note)
        for item in found
        if not item.ok
    ]
    return failed or [Comparison.statement(label, True)]


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether dtype, shape and every value agree; any NaN is as good as another."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(nan=1.5), b.nan_to_num(nan=1.5))


def _transposed(x: Tensor) -> Tensor:
    return x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() else x


def _sliced(x: Tensor) -> Tensor:
    return torch.stack((x, torch.full_like(x, float("nan"))), dim=-1)[..., 0]


def _shifted(x: Tensor) -> Tensor:
    return torch.cat((x.new_zeros(1), x.flatten()))[1:].view(x.shape)
