"""What is timed: calls of a module, the library calls of its contraction alone, and copies of its tail's bytes."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fusegen.bench.names import EVAL, STEP
from fusegen.plan.modules.plan import Plan
from fusegen.plan.programs.model import Mode
from fusegen.verify.runs.run import undisturbed
from fusegen.verify.subjects.emulated import in_product

Call = Callable[[], Any]


@dataclass(frozen=True)
class Work:
    """One subject in one mode. graphs: it replays CUDA graphs, whose memory stays allocated between calls."""

    call: Call
    graphs: bool = False


def module_work(
    module: nn.Module,
    inputs: Sequence[Tensor],
    grad_output: Tensor | Sequence[Tensor],
    what: str,
    *,
    graphs: bool = False,
) -> Work:
    """A call of `module`, put into the mode it needs: a forward pass, or one with the gradients of all inputs and
    parameters. grad_output: of the result, or of each of several."""
    module.train(what != EVAL)
    wanted = [t for t in (*inputs, *module.parameters()) if t.requires_grad]

    def evaluate() -> Tensor:
        with torch.no_grad():
            return module(*inputs)

    def forward() -> Tensor:
        return module(*inputs)

    def step() -> tuple[Tensor | None, ...]:
        # `detach` in a chain leaves an input without a gradient.
        return torch.autograd.grad(module(*inputs), wanted, grad_output, allow_unused=True)

    call = {EVAL: evaluate, STEP: step}.get(what, forward)
    return Work(_marked(call) if graphs else call, graphs)


def gradients(module: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Random gradients of the results of a module, which is left as it was."""
    with undisturbed(module), torch.no_grad():
        found = module.eval()(*inputs)
    return [torch.randn_like(each) for each in (found if isinstance(found, tuple) else (found,))]


def contraction_work(
    plan: Plan, mode: Mode, original: nn.Module, inputs: Sequence[Tensor], grad_output: Tensor, what: str
) -> Work | None:
    """The library calls that the fused module makes for its anchor; None for a chain that has none.

    In float32 without the bias, which the kernels add, see docs/architecture.md.
    """
    if plan.chain.convolution:
        return convolution_work(plan.spec.chain[0], original, inputs[0], grad_output, what)
    if plan.chain.batched:
        return _batched_work(plan, inputs, grad_output, what)
    contraction = plan.chain.contraction
    if contraction is None:
        return None
    weight = original.get_parameter(contraction.attribute).detach()
    weight = weight.t() if contraction.by_columns else weight
    with_bias = any(in_product(plan, mode, name) for name in plan.chain.parameters)
    added = [p.attribute for p in plan.chain.parameters.values() if p.in_product] if with_bias else []
    bias = original.get_parameter(added[0]).detach() if added else None
    data = inputs[[given.name for given in plan.chain.inputs].index(contraction.source)].detach().flatten(0, -2)
    grad = _gradient_of_product((data.shape[0], weight.shape[0]), grad_output, data)

    def forward() -> Tensor:
        return nn.functional.linear(data, weight, bias)

    def step() -> tuple[Tensor, ...]:
        return forward(), grad @ weight, grad.t() @ data

    return Work(step if what == STEP else forward)


def _gradient_of_product(shape: Sequence[int], grad_output: Tensor | None, like: Tensor) -> Tensor:
    """The gradient that comes to the product: that of the result, or random values where this has other elements, as
    behind parts of the channels or a reduction. like: has its dtype and device."""
    if grad_output is not None and grad_output.numel() == math.prod(shape):
        return grad_output.to(like.dtype).reshape(tuple(shape))
    return torch.randn(tuple(shape), dtype=like.dtype, device=like.device)


def _batched_work(plan: Plan, inputs: Sequence[Tensor], grad_output: Tensor, what: str) -> Work:
    """The product of two inputs alone, for each element of the batch, and its two gradients."""
    b, names = plan.chain.batched, [given.name for given in plan.chain.inputs]
    left, right = (inputs[names.index(name)].detach() for name in (b.source, b.other))  # type: ignore[union-attr]
    right = right.mT if b.transposed else right  # type: ignore[union-attr]
    grad = _gradient_of_product((*left.shape[:-1], right.shape[-1]), grad_output, left)

    def forward() -> Tensor:
        return left @ right

    def step() -> tuple[Tensor, ...]:
        return forward(), grad @ right.mT, left.mT @ grad

    return Work(step if what == STEP else forward)


def convolution_work(step: Any, original: nn.Module, given: Tensor, grad_output: Tensor | None, what: str) -> Work:
    """The convolution alone: without its bias, its operands in channels_last, as the fused module makes it. A step of
    a depthwise one in float32 has contiguous operands where the module's weight gradient has. step: the layer's.
    grad_output: of the chain's result; None for a random gradient.
    """
    layer: Any = copy.deepcopy(original.get_submodule(step.name))
    format_ = {2: torch.channels_last, 3: torch.channels_last_3d}.get(step.spatial, torch.contiguous_format)
    is_depthwise = not step.transposed and 1 < layer.groups == layer.in_channels
    by_cudnn = tuple(layer.kernel_size) in ((3, 3), (5, 5))
    if is_depthwise and not by_cudnn and what == STEP and given.dtype == torch.float32:
        format_ = torch.contiguous_format
    layer.to(memory_format=format_)
    layer.register_parameter("bias", None)
    x = given.detach().contiguous(memory_format=format_).requires_grad_()

    def forward() -> Tensor:
        with torch.no_grad():
            return layer(x)

    grad = _gradient_of_product(forward().shape, grad_output, x).contiguous(memory_format=format_)

    def both() -> tuple[Tensor, ...]:
        return torch.autograd.grad(layer(x), (x, layer.weight), grad)

    return Work(both if what == STEP else forward)


def copy_work(counts: Sequence[int], device: str) -> Work:
    """One device copy for each direction of the tail that moves `counts` bytes, reads and writes together.

    Random bytes: copies of zeros draw less power and so run at higher clocks.
    """
    pairs = []
    for count in counts:
        source = torch.randint(0, 256, (max(count // 2, 1),), dtype=torch.uint8, device=device)
        pairs.append((torch.empty_like(source), source))

    def copy() -> None:
        for target, source in pairs:
            target.copy_(source)

    return Work(copy)


def _marked(call: Call) -> Call:
    """Tells CUDA graphs that the results of the last call may be overwritten: without it, a forward pass that was never
    followed by its backward pass would make them copy, or record again."""

    def marked() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return call()

    return marked
