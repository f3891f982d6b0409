"""The ways a module is run: on another stream, captured into a CUDA graph, through torch.compile.

The checks that need a CUDA device return an empty list without one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch._inductor import config as inductor

from fusegen.verify.checks.behaviour import summed_up
from fusegen.verify.checks.compared import Data, judge_run
from fusegen.verify.judgement.policy import Comparison
from fusegen.verify.references.reference import reference
from fusegen.verify.runs.dropout_replay import set_state
from fusegen.verify.runs.run import Run, draw_gradient, drawn_like, input_name, run, wanting


def other_stream(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """On a stream that is behind: a kernel launched on the default stream would read the input before it is
    there."""
    if inputs[0].device.type != "cuda":
        return []
    grad_output = draw_gradient(original, inputs)
    late = [torch.full_like(x, float("nan"), requires_grad=False) for x in (*inputs, grad_output)]
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)  # about 10 ms
        for mine, data in zip(late, (*inputs, grad_output), strict=True):
            mine.copy_(data.detach())
        found = run(fused, [wanting(x) for x in late[:-1]], late[-1])
    torch.cuda.synchronize()
    return _judged("other stream", found, original, inputs, grad_output)


def cuda_graph(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """Forward and backward captured once, then replayed on other data than they were captured with."""
    if inputs[0].device.type != "cuda":
        return []
    module = copy.deepcopy(fused).train()
    grad_output = draw_gradient(original, inputs)
    static = [wanting(drawn_like(x)) for x in inputs]
    static_grad = torch.randn_like(grad_output)
    wanted = [*(x for x in static if x.requires_grad), *module.parameters()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            torch.autograd.grad(module(*static), wanted, static_grad)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = module(*static)
        gradients = torch.autograd.grad(output, wanted, static_grad)
    with torch.no_grad():
        for mine, theirs in zip(module.buffers(), original.buffers(), strict=True):
            mine.copy_(theirs)
        for result in (output, *gradients):
            result.fill_(float("nan"))
        # Then: the gradient of a residual may be the very tensor that came.
        for mine, data in zip((*static, static_grad), (*inputs, grad_output), strict=True):
            mine.copy_(data)
    set_state()  # which the replay draws from
    graph.replay()
    torch.cuda.synchronize()
    names = [input_name(index) for index, x in enumerate(static) if x.requires_grad]
    names += [name for name, _ in module.named_parameters()]
    without = dict.fromkeys(input_name(index) for index, x in enumerate(static) if not x.requires_grad)
    found = Run(output.detach(), dict(zip(names, gradients, strict=True)) | without, dict(module.named_buffers()))
    return _judged("CUDA graph", found, original, inputs, grad_output)


def compiled(fused: nn.Module, original: nn.Module, inputs: Sequence[Tensor]) -> list[Comparison]:
    """Through torch.compile without a graph break, in train and eval; by Inductor where there is a GPU."""
    backend = "inductor" if inputs[0].device.type == "cuda" else "aot_eager"
    results = []
    for train in (True, False):
        grad_output = draw_gradient(original, inputs, train=train)
        torch._dynamo.reset()
        wrapped = torch.compile(copy.deepcopy(fused), fullgraph=True, backend=backend)
        with inductor.patch(fallback_random=True):  # draws as eager PyTorch does
            found = run(wrapped, inputs, grad_output, train=train)  # type: ignore[arg-type]
        prefix = "_orig_mod."
        found.gradients = {name.removeprefix(prefix): g for name, g in found.gradients.items()}
        found.buffers = {name.removeprefix(prefix): b for name, b in found.buffers.items()}
        label = f"torch.compile, {'train' if train else 'eval'}"
        results += _judged(label, found, original, inputs, grad_output, train=train)
    torch._dynamo.reset()
    return results


def _judged(
    label: str,
    found: Run,
    original: nn.Module,
    inputs: Sequence[Tensor],
    grad_output: Tensor,
    *,
    train: bool = True,
) -> list[Comparison]:
    exact = reference(original, inputs, grad_output, train=train)
    eager = run(original, inputs, grad_output, train=train)
    data = Data(original, inputs, grad_output, inputs[0].dtype, train=train)
    return summed_up(label, judge_run(found, eager, exact, data))
