"""What a module has to do besides the arithmetic: same bits twice, streams, graphs, strides, frozen
parameters.

Each check returns comparisons, so that they stand in one table with the numerics. The checks that need a
CUDA device return an empty list without one.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from fusegen.verify.policy import Comparison
from fusegen.verify.reference import reference
from fusegen.verify.run import Run, draw_gradient, run
from fusegen.verify.training import compare_module, compare_runs


def poison(*tensors: Tensor) -> None:
    """Fill freed memory of these tensors' sizes with NaN, so that an output left unwritten shows.

    The allocator hands a freed block to the next request of its size: a result that is not written in full
    reads NaN.
    """
    blocks = [torch.full_like(t, float("nan"), requires_grad=False) for t in tensors for _ in range(3)]
    small = [torch.full((size,), float("nan"), device=tensors[0].device) for size in (16, 512, 4096, 65536)]
    del blocks, small


def bitwise_equal(first: Run, second: Run, name: str = "two runs bitwise equal") -> Comparison:
    """Whether two runs left the same bits behind."""

    def tensors(one: Run) -> dict[str, Tensor | None]:
        return {"output": one.output} | {f"grad {k}": v for k, v in one.gradients.items()} | one.buffers

    a, b = tensors(first), tensors(second)
    wrong = [k for k in a if (a[k] is None) != (b[k] is None) or (a[k] is not None and not _same_bits(a[k], b[k]))]
    return Comparison.statement(name, not wrong, ", ".join(wrong))


def inputs_untouched(module: nn.Module, x: Tensor, *, train: bool = True) -> Comparison:
    """Whether input, incoming gradient and parameters keep their bits through forward and backward."""
    grad_output = draw_gradient(module, x)
    watched = {"input": x, "incoming gradient": grad_output} | dict(module.named_parameters())
    before = {name: t.detach().clone() for name, t in watched.items()}
    run(module, x, grad_output, train=train)
    wrong = [name for name, t in watched.items() if not _same_bits(before[name], t.detach())]
    return Comparison.statement("inputs untouched", not wrong, ", ".join(wrong))


def strides(fused: nn.Module, original: nn.Module, x: Tensor, *, train: bool = True) -> list[Comparison]:
    """A transposed and a sliced input, a transposed gradient and one expanded from a single value."""
    results = []
    dense = draw_gradient(original, x)
    wide = torch.stack((x.detach(), torch.full_like(x, float("nan"))), dim=-1)
    inputs = {
        "transposed input": x.detach().t().contiguous().t(),
        "sliced input": wide[..., 0],
        "input with an offset": torch.cat((x.detach().new_zeros(1), x.detach().flatten()))[1:].view(x.shape),
    }
    gradients = {
        "transposed gradient": dense.t().contiguous().t(),
        "expanded gradient": dense.flatten()[:1].expand(dense.shape),
        "gradient expanded over rows": dense[:1].expand(dense.shape),
    }
    for name, value in inputs.items():
        found = compare_module(fused, original, value.requires_grad_(), grad_output=dense, train=train)
        results += _named(name, found)
    for name, value in gradients.items():
        results += _named(name, compare_module(fused, original, x, grad_output=value, train=train))
    return results


def frozen(fused: nn.Module, original: nn.Module, x: Tensor) -> list[Comparison]:
    """Each parameter frozen on its own, all but each, all of them, and an input that wants no gradient."""
    names = [name for name, _ in original.named_parameters()]
    plans = {f"frozen {name}": {name} for name in names}
    plans |= {f"only {name}": set(names) - {name} for name in names}
    plans["all frozen"] = set(names)
    results = []
    try:
        for label, cold in plans.items():
            for module in (fused, original):
                for name, parameter in module.named_parameters():
                    parameter.requires_grad_(name not in cold)
            for wants in (True, False):
                leaf = x.detach().requires_grad_(wants)
                suffix = "" if wants else ", no input gradient"
                results += _named(label + suffix, compare_module(fused, original, leaf))
    finally:
        for module in (fused, original):
            module.requires_grad_(True)
    return results


def other_stream(fused: nn.Module, original: nn.Module, x: Tensor) -> list[Comparison]:
    """On a stream that is behind: a kernel launched on the default stream would read the input before it is
    there."""
    if x.device.type != "cuda":
        return []
    grad_output = draw_gradient(original, x)
    late_x, late_grad = torch.full_like(x, float("nan")), torch.full_like(grad_output, float("nan"))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # about 10 ms
        late_x.detach().copy_(x.detach())
        late_grad.copy_(grad_output)
        found = run(fused, late_x.detach().requires_grad_(), late_grad)
    torch.cuda.synchronize()
    exact = reference(original, x, grad_output)
    return _named("other stream", compare_runs(found, run(original, x, grad_output), exact, x.dtype))


def cuda_graph(fused: nn.Module, original: nn.Module, x: Tensor) -> list[Comparison]:
    """Forward and backward captured once, then replayed on other data than they were captured with."""
    if x.device.type != "cuda":
        return []
    module = copy.deepcopy(fused).train()
    grad_output = draw_gradient(original, x)
    static_x = torch.randn_like(x).requires_grad_()
    static_grad = torch.randn_like(grad_output)
    wanted = [static_x, *module.parameters()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            torch.autograd.grad(module(static_x), wanted, static_grad)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = module(static_x)
        gradients = torch.autograd.grad(output, wanted, static_grad)
    with torch.no_grad():
        for mine, theirs in zip(module.buffers(), original.buffers(), strict=True):
            mine.copy_(theirs)
        static_x.copy_(x)
        static_grad.copy_(grad_output)
        for result in (output, *gradients):
            result.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    names = ["input", *(name for name, _ in module.named_parameters())]
    found = Run(output.detach(), dict(zip(names, gradients, strict=True)), dict(module.named_buffers()))
    exact = reference(original, x, grad_output)
    return _named("CUDA graph", compare_runs(found, run(original, x, grad_output), exact, x.dtype))


def compiled(fused: nn.Module, original: nn.Module, x: Tensor, *, backend: str = "inductor") -> list[Comparison]:
    """Through torch.compile without a graph break, in training."""
    module = copy.deepcopy(fused)
    grad_output = draw_gradient(original, x)
    torch._dynamo.reset()
    wrapped = torch.compile(module, fullgraph=True, backend=backend)
    found = run(wrapped, x, grad_output)
    prefix = "_orig_mod."
    found.gradients = {name.removeprefix(prefix): g for name, g in found.gradients.items()}
    found.buffers = {name.removeprefix(prefix): b for name, b in found.buffers.items()}
    exact = reference(original, x, grad_output)
    return _named("torch.compile", compare_runs(found, run(original, x, grad_output), exact, x.dtype))


def _named(label: str, found: list[Comparison]) -> list[Comparison]:
    """Prefix what failed; sum up what passed in one line, since there are many of them."""
    failed = [
        Comparison(f"{label}: {item.name}", item.fused, item.eager, item.bound, False, item.note)
        for item in found
        if not item.ok
    ]
    return failed or [Comparison.statement(label, True)]


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.nan_to_num(nan=1.5), b.nan_to_num(nan=1.5))
